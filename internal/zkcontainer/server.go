package zkcontainer

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/zkrecipes/zkrecipes/zktest"
)

const clientPort = "2181"

// config is as zktest has it: short ticks, so that a test meets an expiry instead of waiting for it. quorumListenOnAllIPs: an
// address that comes back after a cut must find the server listening still.
const config = `tickTime=200
initLimit=20
syncLimit=10
minSessionTimeout=400
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
quorumListenOnAllIPs=true
forceSync=no
preAllocSize=4096
dataDir=/data
clientPort=` + clientPort + "\n"

// cnxTimeout: an election must not wait for a server that is cut off.
const jvmFlags = "-Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Dzookeeper.cnxTimeout=500" +
	" -Dznode.container.checkIntervalMs=1000 -Dzookeeper.jmx.log4j.disable=true"

// makeNetwork makes a network and returns its name and the addresses for the servers. Those must be known beforehand, and a
// server must get its own back after a cut, which Docker grants only in a range that was asked for. The ranges are
// from 198.18.0.0/15, which is for tests in a laboratory and so nobody's in earnest; two tests may choose the same.
func (e *Ensemble) makeNetwork(ctx context.Context, labels map[string]string) (string, [nodes]netip.Addr, error) {
	var addrs [nodes]netip.Addr
	var err error
	for range 10 {
		first := netip.AddrFrom4([4]byte{198, byte(18 + rand.IntN(2)), byte(rand.IntN(256)), byte(rand.IntN(32) * 8)})
		name := fmt.Sprintf("zkcontainer-%08x", rand.Uint32())
		var made client.NetworkCreateResult
		made, err = e.docker.NetworkCreate(ctx, name, client.NetworkCreateOptions{
			Driver:   "bridge",
			Internal: true, // nothing here has business outside
			Labels:   labels,
			IPAM:     &network.IPAM{Config: []network.IPAMConfig{{Subnet: netip.PrefixFrom(first, 29)}}},
		})
		if err != nil {
			continue
		}
		e.network = made.ID
		next := first.Next() // the machine's own
		for i := range addrs {
			next = next.Next()
			addrs[i] = next
		}
		return name, addrs, nil
	}
	return "", addrs, fmt.Errorf("no network: %w", err)
}

func endpoint(addr netip.Addr) *network.EndpointSettings {
	return &network.EndpointSettings{IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: addr}}
}

// runServer starts a server, and does not wait for it. It returns the container, if there is one, with an error too.
func runServer(ctx context.Context, engine zktest.Docker, networkName string, labels map[string]string, i int, addrs [nodes]netip.Addr) (testcontainers.Container, error) {
	text := config
	for n, addr := range addrs {
		text += fmt.Sprintf("server.%d=%s:2888:3888\n", n+1, addr)
	}
	file := func(path, content string) testcontainers.ContainerFile {
		return testcontainers.ContainerFile{Reader: strings.NewReader(content), ContainerFilePath: path, FileMode: 0o644}
	}
	ct, err := testcontainers.Run(ctx, engine.Image,
		testcontainers.WithLabels(labels),
		testcontainers.WithEntrypoint("zkServer.sh"), // not the official image's script, which writes files that are here already
		testcontainers.WithCmd("start-foreground", "/conf/zoo.cfg"),
		testcontainers.WithEnv(map[string]string{"JVMFLAGS": jvmFlags, "JMXDISABLE": "true"}),
		testcontainers.WithFiles(file("/conf/zoo.cfg", text), file("/data/myid", strconv.Itoa(i+1)+"\n")),
		testcontainers.CustomizeRequestOption(func(req *testcontainers.GenericContainerRequest) error {
			req.Networks = []string{networkName}
			return nil
		}),
		testcontainers.WithEndpointSettingsModifier(func(settings map[string]*network.EndpointSettings) {
			settings[networkName].IPAMConfig = endpoint(addrs[i]).IPAMConfig
		}),
		testcontainers.WithHostConfigModifier(func(host *container.HostConfig) {
			if engine.CgroupParent != "" {
				host.CgroupParent, host.CPUShares = engine.CgroupParent, zktest.CPUShares
			}
		}),
	)
	if ct == nil { // a nil pointer, which is not a nil Container
		return nil, err
	}
	return ct, err
}

func (s *server) clientAddr() string { return net.JoinHostPort(s.addr.String(), clientPort) }

// serves tells whether the server leads or follows.
func (s *server) serves(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.clientAddr())
	if err != nil {
		return false
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return false
	}
	answer, _ := io.ReadAll(conn)
	return strings.Contains(string(answer), "\nMode: ")
}
