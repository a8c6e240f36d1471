package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/zkrecipes/zkrecipes/examples/internal/program"
)

func TestMain(m *testing.M) { program.Main(m, main) }

// Two instances as processes. The first leads until it is asked to stop, and the second from then on; the third replaces it when it is killed.
func TestTheProgram(t *testing.T) {
	servers := program.Servers(t)
	start := func() (*program.Process, func() string) {
		p := program.Start(t, "-servers", servers, "-listen", "127.0.0.1:0", "-piece", "50ms", "-session-timeout", "2s")
		url := "http://" + p.Find(`health at (\S+)\n`)[1] + "/healthz"
		return p, func() string {
			answer, err := http.Get(url)
			if err != nil {
				return err.Error()
			}
			defer answer.Body.Close()
			body, _ := io.ReadAll(answer.Body)
			return answer.Status + " " + strings.TrimSpace(string(body))
		}
	}
	defer http.DefaultClient.CloseIdleConnections()
	const leads, standsBy = "200 OK leader", "503 Service Unavailable standby"
	first, health1 := start()
	program.Eventually(t, "the first leads", func() bool { return health1() == leads })
	second, health2 := start()
	if got := health2(); got != standsBy {
		t.Error(got)
	}
	first.Signal(syscall.SIGTERM)
	if code := first.Exit(); code != 0 {
		t.Error("exit code", code)
	}
	program.Eventually(t, "the second leads", func() bool { return health2() == leads })
	_, health3 := start()
	if got := health3(); got != standsBy {
		t.Error(got)
	}
	second.Signal(os.Kill)
	second.Exit()
	program.Eventually(t, "the third leads", func() bool { return health3() == leads })
}
