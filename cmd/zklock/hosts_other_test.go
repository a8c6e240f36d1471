//go:build !linux

package main

// missingForHosts is empty: the tests with hosts of their own are for Linux.
func missingForHosts() string { return "" }
