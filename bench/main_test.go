package main

import (
	"os"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(holderRole); role != "" {
		exit(hold(role))
	}
	os.Exit(testrun.Main(m, nil, zktest.CloseShared))
}
