// Command recording runs the demonstration and draws what a terminal showed, line by line, in the time that it took: docs/demo.svg. go run
// ./internal/tools/recording, or make recording.
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

func main() {
	lines, err := record("go", "run", "./cmd/zklock", "demo")
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("docs", "demo.svg"), draw(lines), 0o666); err != nil {
		log.Fatal(err)
	}
}

// A line is what a terminal showed, from a time on.
type line struct {
	at   time.Duration
	text string
}

// typed is how long the command stands there before it answers: how long it took to build says nothing.
const typed = 800 * time.Millisecond

// record runs a command.
func record(name string, args ...string) (lines []line, err error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var first time.Time
	for in := bufio.NewScanner(out); in.Scan(); {
		now := time.Now()
		if first.IsZero() {
			first = now
		}
		lines = append(lines, line{(typed + now.Sub(first)).Round(10 * time.Millisecond), in.Text()})
		fmt.Println(in.Text())
	}
	return lines, cmd.Wait()
}
