package zktest

// TB is the part of testing.TB that this package uses. Every *testing.T,
// *testing.B and *testing.F is one. It is declared here so that importing
// zktest does not pull package testing, and its flags, into a program.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(func())
	Name() string
}
