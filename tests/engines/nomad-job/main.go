// nomad-job prints the job in a file as Nomad reads it, in JSON, or what is wrong with it. A module of its own keeps
// Nomad's dependencies out of the others.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/hashicorp/nomad/jobspec2"
)

func main() {
	path := os.Args[1]
	body, err := os.ReadFile(path)
	if err == nil {
		err = write(path, body)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(path string, body []byte) error {
	job, err := jobspec2.ParseWithConfig(&jobspec2.ParseConfig{Path: path, Body: body, Strict: true})
	if err != nil {
		return err
	}
	job.Canonicalize()
	return json.NewEncoder(os.Stdout).Encode(job)
}
