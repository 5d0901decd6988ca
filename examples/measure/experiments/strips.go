package main

import "time"

// strip is one group of measurements: without redeploys and with.
type strip struct {
	name       string
	calm, with spread
}

// drawStrips draws every measurement as a dot, the median as a bar, in pairs of columns.
func drawStrips(title string, all []strip) []byte {
	d := newDrawing(title, wide, 400)
	least, most := time.Duration(1<<62), time.Duration(0)
	for _, s := range all {
		least, most = min(least, s.calm.at(0), s.with.at(0)), max(most, s.calm.at(1), s.with.at(1))
	}
	y := logScale(least, most, 350, 70)
	y.decades(func(at float64, label string) {
		d.line("grid", left, at, right, at)
		d.text(left-10, at+4, "end", "soft", label)
	})
	pitch := (right - left) / float64(len(all))
	for i, s := range all {
		middle := left + pitch*(float64(i)+0.5)
		d.strip("calm", s.calm, middle-40, y)
		d.strip("with", s.with, middle+40, y)
		d.text(middle, 384, "middle", "name", s.name)
		d.text(middle-40, 366, "middle", "soft", "no redeploy")
		d.text(middle+40, 366, "middle", "soft", "redeploy")
	}
	for _, published := range []struct {
		gap  time.Duration
		name string
	}{{200 * time.Millisecond, "published: 0.2 s"}, {15 * time.Millisecond, "published, tuned: 0.015 s"}} {
		if at := y.log(published.gap); at > y.to && at < y.from {
			d.line("mark", left, at, right, at)
			d.text(right, at-4, "end", "soft", published.name)
		}
	}
	return d.finish()
}

func (d *drawing) strip(class string, all spread, x float64, y scale) {
	for i, v := range all {
		d.dot(class, x+float64(i%5-2)*5, y.log(v), 3.2)
	}
	at := y.log(all.at(0.5))
	d.rect(class, x-26, at-1.5, 52, 3)
}
