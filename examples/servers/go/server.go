// Server is what most Go programs are: net/http and nothing else. TERM ends it.
package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"time"
)

func main() {
	answer := func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "generation=%s\n", os.Getenv("SUPERVISORD_GENERATION"))
	}
	http.HandleFunc("/", answer)
	http.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(300 * time.Millisecond)
		answer(w, r)
	})
	log.Fatal(http.ListenAndServe(":"+os.Getenv("PORT"), nil))
}
