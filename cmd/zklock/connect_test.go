//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes"
)

// Every way to give a credential opens what only it opens, and none shows it.
func TestCredentials(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	servers := sharedServers(t)
	s := observer(t, servers)
	plant(t, s, servers, "/x", "", 0)
	_, namespace, err := zkrecipes.ParseConnectString(servers)
	require.NoError(t, err)
	_, err = s.Conn().Create(namespace+"/lock", nil, 0, zk.DigestACL(zk.PermAll, "cron", secret))
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "auth")
	require.NoError(t, os.WriteFile(file, []byte("\ndigest:other:"+secret+"\ndigest:cron:"+secret+"\n"), 0o600))
	for name, tc := range map[string]struct {
		flags []string
		env   string
		code  int
	}{
		"none":                 {nil, "", exitOurs},
		"flag":                 {[]string{"-auth", "digest:cron:" + secret}, "", exitOK},
		"environment":          {nil, "digest:cron:" + secret, exitOK},
		"two in it":            {nil, "digest:other:" + secret + "\ndigest:cron:" + secret, exitOK},
		"file":                 {[]string{"-auth-file", file}, "", exitOK},
		"flag and environment": {[]string{"-auth", "digest:other:" + secret}, "digest:cron:" + secret, exitOurs},
		"wrong":                {nil, "digest:cron:" + secret + secret, exitOurs},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			z := onServers(t, servers, append(append([]string{"run", "-v"}, tc.flags...), "/lock", "--", "true")...)
			z.Env = append(z.Env, "ZKLOCK_AUTH="+tc.env)
			require.Equal(t, tc.code, z.run(t))
			if tc.code != exitOK {
				require.Contains(t, z.stderr.String(), "ZKLOCK_AUTH or -auth-file")
			}
			require.NotContains(t, z.stdout.String()+z.stderr.String(), secret)
		})
	}
}

// What is wrong with a credential is told without it.
func TestWrongCredentialsAreNotRepeated(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	file := filepath.Join(t.TempDir(), "auth")
	require.NoError(t, os.WriteFile(file, []byte(secret), 0o600))
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))
	for _, tc := range []struct {
		args      []string
		env, want string
	}{
		{[]string{"-auth", secret}, "", "scheme:credential"},
		{[]string{"-auth", ":" + secret}, "", "scheme:credential"},
		{[]string{"-auth", secret + ":"}, "", "scheme:credential"},
		{nil, secret, "ZKLOCK_AUTH"},
		{[]string{"-auth-file", file}, "", "-auth-file"},
		{[]string{"-auth-file", empty}, "", "no credential"},
		{[]string{"-auth-file", empty + ".none"}, "", "no such file"},
		{[]string{"-auth", "digest:u", "digest:u:" + secret}, "", "2 paths"}, // a flag too few
	} {
		z := onServers(t, "127.0.0.1:1", append(append([]string{"status"}, tc.args...), "/lock")...)
		z.Env = append(z.Env, "ZKLOCK_AUTH="+tc.env)
		require.Equal(t, exitUsage, z.run(t), tc.args)
		require.Contains(t, z.stderr.String(), tc.want)
		require.NotContains(t, z.stdout.String()+z.stderr.String(), secret)
	}
}

// certify makes a certificate, signed by another or by itself, and its files.
func certify(t *testing.T, dir, name string, by *tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := c, any(key)
	if by == nil {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage, c.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
	} else {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	for ext, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "EC PRIVATE KEY", Bytes: private}} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+ext), pem.EncodeToMemory(block), 0o600))
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// terminate listens with TLS and forwards what is inside.
func terminate(t *testing.T, config *tls.Config, target string) (addr string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { _ = l.Close() })
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer in.Close()
				out, err := net.Dial("tcp", target)
				if err != nil {
					return
				}
				defer out.Close()
				wg.Go(func() {
					_, _ = io.Copy(out, in)
					_ = out.Close()
				})
				_, _ = io.Copy(in, out)
			})
		}
	})
	return l.Addr().String()
}

func TestTLS(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	target, chroot, _ := strings.Cut(servers, "/")
	target, _, _ = strings.Cut(target, ",")
	dir := t.TempDir()
	authority := certify(t, dir, "authority", nil)
	server := certify(t, dir, "zk.example", &authority)
	certify(t, dir, "client", &authority)
	pool := x509.NewCertPool()
	pool.AddCert(authority.Leaf)
	addr := terminate(t, &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}, target)
	file := func(name string) string { return filepath.Join(dir, name) }
	ca, name, client := []string{"-tls-ca", file("authority.crt")}, []string{"-tls-name", "zk.example"}, []string{"-tls-cert", file("client.crt"), "-tls-key", file("client.key")}
	for what, tc := range map[string]struct {
		flags [][]string
		code  int
		want  string
	}{
		"all":             {[][]string{ca, name, client}, exitOK, ""},
		"no name":         {[][]string{ca, client}, exitNoConnection, "-tls-name"},
		"no authority":    {[][]string{name, client}, exitNoConnection, "-tls-ca"},
		"no certificate":  {[][]string{ca, name}, exitNoConnection, ""},
		"half a pair":     {[][]string{{"-tls-key", file("client.key")}}, exitUsage, "belong together"},
		"no such file":    {[][]string{{"-tls-ca", file("none")}}, exitUsage, "no such file"},
		"no certificates": {[][]string{{"-tls-ca", file("client.key")}}, exitUsage, "no certificate"},
		"wrong pair":      {[][]string{{"-tls-cert", file("client.crt"), "-tls-key", file("authority.key")}}, exitUsage, "-tls-cert, -tls-key"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			args := []string{"run", "-timeout", "2s"}
			if tc.code == exitOK {
				args = []string{"run", "-timeout", "1m", "-tls"}
			}
			for _, each := range tc.flags {
				args = append(args, each...)
			}
			z := onServers(t, addr+"/"+chroot, append(args, "/lock", "--", "echo", "ran")...)
			require.Equal(t, tc.code, z.run(t))
			require.Contains(t, z.stderr.String(), tc.want)
			require.Equal(t, tc.code == exitOK, z.stdout.String() == "ran\n")
		})
	}
}
