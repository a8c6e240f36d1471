package core

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testrun"
	"github.com/zkrecipes/zkrecipes/zktest"
)

// An authority signs certificates for a test.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a := &authority{t: t, key: key}
	a.cert = a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, &key.PublicKey)
	return a
}

func (a *authority) sign(c, parent *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key, a.key)
	require.NoError(a.t, err)
	signed, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return signed
}

// issue makes a certificate for names and addresses.
func (a *authority) issue(names []string, ips ...net.IP) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	c := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test server"}, DNSNames: names, IPAddresses: ips,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, &key.PublicKey)
	return tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// terminate listens with TLS and forwards what is inside to target. It returns the port.
func terminate(t *testing.T, cfg *tls.Config, target string) (port string) {
	l, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				s, err := net.Dial("tcp", target)
				if err != nil {
					return
				}
				defer s.Close()
				wg.Go(func() {
					defer c.Close()
					_, _ = io.Copy(c, s)
				})
				_, _ = io.Copy(s, c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	_, port, err = net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

func TestTLS(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	target := zktest.Shared(t).Addrs()[0]
	serve := func(c tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c}} }
	ip := net.IPv4(127, 0, 0, 1)
	for _, tt := range []struct {
		name   string
		server *tls.Config
		host   string
		client *tls.Config
		want   string // of the error; "" is a session
	}{
		{"name of the list", serve(ca.issue([]string{"localhost"})), "localhost", &tls.Config{RootCAs: ca.pool()}, ""},
		{"address of the list", serve(ca.issue(nil, ip)), "127.0.0.1", &tls.Config{RootCAs: ca.pool()}, ""},
		{"address, certificate for a name", serve(ca.issue([]string{"localhost"})), "127.0.0.1", &tls.Config{RootCAs: ca.pool()}, "certificate"},
		{"name, certificate for another", serve(ca.issue([]string{"elsewhere"})), "localhost", &tls.Config{RootCAs: ca.pool()}, "certificate is valid for elsewhere, not localhost"},
		{"unknown authority", serve(stranger.issue([]string{"localhost"})), "localhost", &tls.Config{RootCAs: ca.pool()}, "unknown authority"},
		{"server name of the configuration", serve(ca.issue([]string{"zk.internal"})), "127.0.0.1", &tls.Config{RootCAs: ca.pool(), ServerName: "zk.internal"}, ""},
		{"server name of the configuration, wrong", serve(ca.issue([]string{"localhost"})), "localhost", &tls.Config{RootCAs: ca.pool(), ServerName: "zk.internal"}, "not zk.internal"},
		{
			"client certificate",
			&tls.Config{Certificates: []tls.Certificate{ca.issue(nil, ip)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool()},
			"127.0.0.1", &tls.Config{RootCAs: ca.pool(), Certificates: []tls.Certificate{ca.issue([]string{"me"})}}, "",
		},
		{
			"no client certificate",
			&tls.Config{Certificates: []tls.Certificate{ca.issue(nil, ip)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool()},
			"127.0.0.1", &tls.Config{RootCAs: ca.pool()}, "certificate required",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := net.JoinHostPort(tt.host, terminate(t, tt.server, target))
			e, _ := start(t, Config{Servers: []string{server}, TLS: tt.client})
			if tt.want == "" {
				await(t, e)
				do(t, e, func(c Conn) error { _, err := c.Sync("/"); return err })
				require.NoError(t, closeWithin(e, 5*time.Second))
				return
			}
			var err error // of one attempt; the next one may be to the other address
			eventually(t, 10*time.Second, "the refusal is seen", func() bool { err = e.DialError(); return err != nil && !isRefused(err) })
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, server)
			require.False(t, e.Ready())
		})
	}
	require.Empty(t, (&tls.Config{}).ServerName)
}

// isRefused is for the other address of localhost, where nobody listens.
func isRefused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// A server that takes connections and does not answer the TLS handshake is given up after a third of the timeout like one that does not answer the
// session's.
func TestHungTLSHandshakeIsGivenUp(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake(t)
		f.setOnAccept(func(c *fakeConn) { <-c.done })
		start(t, Config{Servers: []string{"zk1:2181", "zk2:2181"}, Dialer: f.Dial, Timeout: 6 * time.Second, TLS: &tls.Config{}})
		pass(5 * time.Second)
		dials := f.dialed()
		require.Len(t, dials, 3)
		require.Equal(t, 2*time.Second, dials[1].at.Sub(dials[0].at))
		require.NotEqual(t, dials[0].addr, dials[1].addr)
	})
}

// What the wire does with deadlines and held frames it does over TLS too; and a server that speaks no TLS, or nothing, holds nobody up.
func TestTLSReconnects(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	p := zktest.NewProxy(t, zktest.Shared(t).Addrs()[0])
	port := terminate(t, &tls.Config{Certificates: []tls.Certificate{ca.issue(nil, net.IPv4(127, 0, 0, 1))}}, p.Addr())
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, and says nothing
	require.NoError(t, err)
	defer silent.Close()
	e, _ := connect(t, Config{
		Servers: []string{silent.Addr().String(), "127.0.0.1:" + port}, Timeout: 4 * time.Second,
		TLS: &tls.Config{RootCAs: ca.pool()}, Auth: []Auth{{"digest", []byte("u:p")}},
	})
	path := newPath(t)
	mk(t, e, path, "")
	var woken atomic.Int32
	sub := e.Watch(path, Data, func(Wake) { woken.Add(1) })
	defer sub.Cancel()
	first := e.Epoch()
	cuts := 3
	if !testrun.Real() {
		cuts = 2 // each is a timeout of the silent one
	}
	for range cuts {
		_, span, err := sub.Arm(within(t, 5*time.Second))
		require.NoError(t, err)
		p.Cut()
		eventually(t, 10*time.Second, "it is back", func() bool { return e.Ready() && e.Epoch().Conn > span.After.Conn })
		n := woken.Load()
		_, _, err = sub.Arm(within(t, 5*time.Second))
		require.NoError(t, err)
		do(t, e, func(c Conn) error { _, err := c.Set(path, nil, -1); return err })
		eventually(t, 5*time.Second, "the watch fires", func() bool { return woken.Load() > n })
	}
	require.Equal(t, first.Session, e.Epoch().Session)
}
