// Command diagrams draws the pictures of docs/concepts.md: go run ./internal/tools/diagrams, or make diagrams.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/zkrecipes/zkrecipes/internal/tools/svg"
)

// pictures are the files in docs.
var pictures = map[string]func() *svg.Picture{
	"concepts-queue.svg":     queue,
	"concepts-readwrite.svg": readWrite,
	"concepts-clock.svg":     clock,
}

func main() {
	for name, draw := range pictures {
		if err := os.WriteFile(filepath.Join("docs", name), draw().Bytes(), 0o666); err != nil {
			log.Fatal(err)
		}
	}
}
