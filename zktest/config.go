package zktest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ports are the ones of one server; quorum and election are 0 when standalone.
type ports struct{ client, quorum, election int }

// maxMinSession keeps the shortest session at 400 ms or below, so that a test
// with the default tick may use one.
const maxMinSession = 400 * time.Millisecond

// zooCfg is the configuration of server i.
func zooCfg(s *settings, i int, dataDir string, all []ports) string {
	lines := []keyValue{
		{"tickTime", millis(s.tick)},
		{"initLimit", strconv.Itoa(s.initLimit)},
		{"syncLimit", strconv.Itoa(s.syncLimit)},
		{"minSessionTimeout", millis(min(2*s.tick, maxMinSession))},
		{"maxSessionTimeout", "60000"},
		{"maxClientCnxns", "0"},
		{"admin.enableServer", "false"},
		{"4lw.commands.whitelist", "*"},
		{"extendedTypesEnabled", "true"},
		{"autopurge.purgeInterval", "0"},
		// No fsync: a killed process loses nothing that it has written, and
		// no test here pulls the plug of the machine.
		{"forceSync", "no"},
		{"preAllocSize", "4096"},
	}
	for _, p := range s.properties {
		lines = set(lines, p)
	}
	lines = append(lines,
		keyValue{"dataDir", filepath.ToSlash(dataDir)},
		keyValue{"clientPort", strconv.Itoa(all[i].client)},
		keyValue{"clientPortAddress", loopback},
	)
	if len(all) > 1 {
		for n, p := range all {
			lines = append(lines, keyValue{
				fmt.Sprintf("server.%d", n+1),
				fmt.Sprintf("%s:%d:%d", loopback, p.quorum, p.election),
			})
		}
	}
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%s=%s\n", l.key, l.value)
	}
	return b.String()
}

func set(lines []keyValue, p keyValue) []keyValue {
	for i := range lines {
		if lines[i].key == p.key {
			lines[i].value = p.value
			return lines
		}
	}
	return append(lines, p)
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Servers up to 3.7, and Debian's, log through log4j, later ones through
// logback. Each reads its own file from the class path and ignores the other's.
const (
	log4jProperties = `log4j.rootLogger=INFO, OUT
log4j.appender.OUT=org.apache.log4j.ConsoleAppender
log4j.appender.OUT.layout=org.apache.log4j.PatternLayout
log4j.appender.OUT.layout.ConversionPattern=%d{ISO8601} %-5p [%t:%c{1}] %m%n
`
	logbackXML = `<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %-5p [%t:%c{1}] %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
`
)

// mainClass runs a standalone server too, if its configuration names no other.
const mainClass = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

// jvmFlags are the flags of the JVM. They trade peak speed for a fast start and
// a small footprint: a test server lives for seconds.
func jvmFlags(s *settings) []string {
	system := []keyValue{
		{"znode.container.checkIntervalMs", "1000"},
		{"zookeeper.jmx.log4j.disable", "true"},
		{"java.awt.headless", "true"},
		{"file.encoding", "UTF-8"}, // of names in digests; before Java 18 the machine's locale says
	}
	for _, p := range s.system {
		system = set(system, p)
	}
	flags := []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData"}
	for _, p := range system {
		flags = append(flags, "-D"+p.key+"="+p.value)
	}
	return flags
}

// classPath begins with dir, for the settings of the log.
func classPath(inst Install, dir string) []string {
	return []string{"-cp", strings.Join(append([]string{dir}, inst.ClassPath...), string(os.PathListSeparator))}
}

func configFile(dir string) string { return filepath.Join(dir, "zoo.cfg") }

// writeConfig fills dir with what server i reads at its start.
func writeConfig(s *settings, i int, dir string, all []ports) error {
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	files := map[string]string{
		configFile(dir):                        zooCfg(s, i, data, all),
		filepath.Join(dir, "log4j.properties"): log4jProperties,
		filepath.Join(dir, "logback.xml"):      logbackXML,
		filepath.Join(data, "myid"):            strconv.Itoa(i+1) + "\n",
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
