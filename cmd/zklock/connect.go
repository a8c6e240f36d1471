package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes"
)

// connectWithin is how long a command looks for a server when nothing else limits it.
const connectWithin = 15 * time.Second

// A connection is how to reach the ensemble: the flags that the commands share.
type connection struct {
	servers, authFile     string
	auth                  []string
	secure                bool
	ca, cert, key, tlsFor string
	timeout               *positive

	namespace string // the chroot; known once it is open
}

func (c *connection) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.servers, "servers", "", "connect `string`, such as zk1:2181,zk2:2181/chroot (default $ZKLOCK_SERVERS)")
	c.timeout = positiveVar(fs, "session-timeout", 10*time.Second, "session `timeout` to ask for: how soon a dead holder is replaced, and how long an outage a live one survives")
	// It never fails: the error of a flag would print the credential.
	fs.Func("auth", "credential, as `scheme:credential` (digest:user:password); others can read it in ps, not so $ZKLOCK_AUTH and -auth-file", func(s string) error {
		c.auth = append(c.auth, s)
		return nil
	})
	fs.StringVar(&c.authFile, "auth-file", "", "`file` with credentials, one in a line as for -auth")
	fs.BoolVar(&c.secure, "tls", false, "encrypt the connection; implied by the other -tls flags")
	fs.StringVar(&c.ca, "tls-ca", "", "PEM `file` of who signs the servers' certificates (default the system's)")
	fs.StringVar(&c.cert, "tls-cert", "", "PEM `file` of the client's certificate")
	fs.StringVar(&c.key, "tls-key", "", "PEM `file` of the client's key")
	fs.StringVar(&c.tlsFor, "tls-name", "", "`name` that the servers' certificates must have (default each server's own)")
}

// open opens a session. What is wrong with the flags is told before anything is sent.
func (c *connection) open(ctx context.Context, opts ...zkrecipes.DialOption) (*zkrecipes.Session, error) {
	connect := cmp.Or(c.servers, os.Getenv("ZKLOCK_SERVERS"))
	if connect == "" {
		return nil, wrong("no servers given: -servers zk1:2181,zk2:2181/chroot, or ZKLOCK_SERVERS in the environment")
	}
	servers, namespace, err := zkrecipes.ParseConnectString(connect)
	if err != nil {
		return nil, failure(err)
	}
	c.namespace = namespace
	opts = append(opts, zkrecipes.WithNamespace(namespace), zkrecipes.WithTimeout(time.Duration(*c.timeout)))
	credentials, err := c.credentials()
	if err != nil {
		return nil, err
	}
	for _, each := range credentials {
		scheme, auth, _ := strings.Cut(each, ":")
		opts = append(opts, zkrecipes.WithAuth(scheme, auth))
	}
	config, err := c.tls()
	if err != nil {
		return nil, err
	}
	if config != nil {
		opts = append(opts, zkrecipes.WithTLS(config))
	}
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, connectWithin, fmt.Errorf("no answer within %v", connectWithin))
		defer cancel()
	}
	session, err := zkrecipes.Dial(ctx, servers, opts...)
	if err != nil {
		return nil, failure(err)
	}
	return session, nil
}

// look opens a session for a command that only looks and says so itself.
func (c *connection) look(ctx context.Context) (*zkrecipes.Session, error) {
	return c.open(ctx, zkrecipes.WithLogger(slog.New(slog.DiscardHandler)))
}

// credentials are those of the flags, or else of the environment. Errors never repeat one.
func (c *connection) credentials() ([]string, error) {
	all, from := c.auth, "-auth"
	if c.authFile != "" {
		b, err := os.ReadFile(c.authFile)
		if err != nil {
			return nil, wrong("-auth-file: %v", err)
		}
		if all, from = append(all, lines(string(b))...), "-auth-file"; len(all) == 0 {
			return nil, wrong("-auth-file: no credential in %s", c.authFile)
		}
	}
	if len(all) == 0 {
		all, from = lines(os.Getenv("ZKLOCK_AUTH")), "ZKLOCK_AUTH"
	}
	for _, each := range all {
		if scheme, auth, _ := strings.Cut(each, ":"); scheme == "" || auth == "" {
			return nil, wrong("%s: a credential is scheme:credential, such as digest:user:password (it is not repeated here)", from)
		}
	}
	return all, nil
}

func lines(text string) (all []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// tls is nil where no flag asks for it.
func (c *connection) tls() (*tls.Config, error) {
	if !c.secure && c.ca == "" && c.cert == "" && c.key == "" && c.tlsFor == "" {
		return nil, nil
	}
	config := &tls.Config{ServerName: c.tlsFor}
	if c.ca != "" {
		pem, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, wrong("-tls-ca: %v", err)
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, wrong("-tls-ca: no certificate in PEM form in %s", c.ca)
		}
	}
	if (c.cert == "") != (c.key == "") {
		return nil, usageError{"-tls-cert and -tls-key belong together"}
	}
	if c.cert != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, wrong("-tls-cert, -tls-key: %v", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// inside is a znode's path as its users name it, without the chroot.
func (c *connection) inside(node string) string {
	if in, ok := strings.CutPrefix(node, c.namespace); ok {
		return cmp.Or(in, "/")
	}
	return node
}

// outside is the path of a znode as Session.Conn wants it.
func (c *connection) outside(path string) string {
	if path == "/" {
		return cmp.Or(c.namespace, "/")
	}
	return c.namespace + path
}

// leave closes a session that holds nothing any more. When the server cannot be told its znodes go with the session.
func leave(s *zkrecipes.Session) { _ = s.Close() }
