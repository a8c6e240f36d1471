package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes"
	"github.com/zkrecipes/zkrecipes/examples/internal/program"
	"github.com/zkrecipes/zkrecipes/zktest"
)

func TestMain(m *testing.M) { program.Main(m, main) }

// start starts an instance and returns where it serves.
func start(t *testing.T, servers string, flags ...string) string {
	t.Helper()
	p := program.Start(t, append(flags, "-servers", servers, "-listen", "127.0.0.1:0")...)
	return "http://" + p.Find(`serving at (\S+)\n`)[1]
}

// post asks an instance for an invoice.
func post(instance, tenant string) (status int, body string) {
	answer, err := http.Post(instance+"/tenants/"+tenant+"/invoice", "", nil)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	b, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, strings.TrimSpace(string(b))
}

// Three instances are asked for invoices of two tenants at once: no number is missing, and none is there twice.
func TestNumbersHaveNoGaps(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	servers, folder := program.Servers(t), t.TempDir()
	const each = 5
	numbers := make(map[string][]int)
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 3 {
		instance := start(t, servers, "-folder", folder, "-wait", "20s", "-work", "1ms", "-host", "host-"+strconv.Itoa(i))
		for _, tenant := range []string{"acme", "a%2Fb%20c"} {
			for range each {
				all.Go(func() {
					status, body := post(instance, tenant)
					n, err := strconv.Atoi(body)
					if status != http.StatusOK || err != nil {
						t.Error(status, body)
					}
					mu.Lock()
					defer mu.Unlock()
					numbers[tenant] = append(numbers[tenant], n)
				})
			}
		}
	}
	all.Wait()
	for tenant, got := range numbers {
		slices.Sort(got)
		for i, n := range got {
			if n != i+1 {
				t.Errorf("%s has %v", tenant, got)
				break
			}
		}
		if len(got) != 3*each {
			t.Error(tenant, "has", len(got))
		}
	}
}

// Who comes while an invoice is being written is told by whom, another tenant is served, and when there is no room nobody waits.
func TestWhoIsInTheWay(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	servers, folder := program.Servers(t), t.TempDir()
	session := program.Session(t, servers, zkrecipes.WithTimeout(10*time.Second))
	slow := start(t, servers, "-folder", folder, "-work", "10m", "-host", "slow", "-room", "1")
	quick := start(t, servers, "-folder", folder, "-wait", "2s", "-work", "1ms", "-host", "quick")
	go post(slow, "acme") // until the test ends
	program.Eventually(t, "it is at it", func() bool {
		ps, err := zkrecipes.Inspect(t.Context(), session, "/tenants/acme")
		return err == nil && len(ps.Holders()) == 1
	})
	begin := time.Now()
	if status, body := post(quick, "acme"); status != http.StatusLocked || !strings.Contains(body, "slow ") {
		t.Error(status, body)
	}
	if d := time.Since(begin); d < 2*time.Second || d > 15*time.Second {
		t.Error("waited for", d)
	}
	if status, body := post(quick, "umbrella"); status != http.StatusOK || body != "1" {
		t.Error(status, body)
	}
	if status, body := post(slow, "umbrella"); status != http.StatusServiceUnavailable || body != "busy" {
		t.Error(status, body)
	}
}

// A label that no znode would take is the client's mistake.
func TestALabelThatIsTooLong(t *testing.T) {
	server := zktest.NewServer(t)
	s := &Service{Session: program.Session(t, server.Addr()), Wait: time.Second, Room: make(chan struct{}, 1), Folder: t.TempDir()}
	request := httptest.NewRequest(http.MethodPost, "/tenants/acme/invoice", nil)
	request.SetPathValue("tenant", "acme")
	request.Header.Set("X-Request-Id", strings.Repeat("x", 64<<10))
	answer := httptest.NewRecorder()
	s.ServeHTTP(answer, request)
	if answer.Code != http.StatusBadRequest {
		t.Error(answer.Code, answer.Body)
	}
}
