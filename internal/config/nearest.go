package config

// nearest returns the known word that was probably meant by word: the one with the fewest changed, missing, extra or
// exchanged letters, if these are at most a third of it.
func nearest(word string, known []string) (string, bool) {
	best, bestDistance := "", len(word)/3+1
	for _, k := range known {
		if len(k) > len(word)+bestDistance || len(word) > len(k)+bestDistance {
			continue
		}
		if d := distance(word, k); d <= bestDistance && (best == "" || d < bestDistance) {
			best, bestDistance = k, d
		}
	}
	return best, best != ""
}

// distance is the optimal string alignment distance of a and b, in bytes.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			row[j+1] = min(last[j]+change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
