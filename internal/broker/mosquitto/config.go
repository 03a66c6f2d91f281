package mosquitto

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"k8s4r.io/k8s4r/internal/wire"
)

// The names of the files.
const (
	ConfFile     = "mosquitto.conf"
	SecurityFile = "dynamic-security.json"
)

// Config is what the files are made of.
type Config struct {
	// Listen is the address, such as ":8883". No host: every interface.
	Listen string
	// Dir is where the files will be on the broker's machine. Mosquitto writes to
	// SecurityFile there.
	Dir string
	// CAFile, CertFile and KeyFile are PEM: who vouches for robots and server, and
	// who the broker is. One that is not absolute is in Dir.
	CAFile, CertFile, KeyFile string
	// Plugin is the path of mosquitto_dynamic_security.so.
	Plugin string
	// Robots that may speak from the start.
	Robots []string
}

// Files are the contents by name: ConfFile and SecurityFile.
func (c Config) Files() (map[string][]byte, error) {
	conf, err := c.conf()
	if err != nil {
		return nil, err
	}
	security, err := c.security()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{ConfFile: conf, SecurityFile: security}, nil
}

// text of mosquitto.conf. Its numbers are those of the embedded broker.
var text = template.Must(template.New("").Parse(`# Mosquitto for K8s4r. Only TLS, only with a certificate.
listener {{.Port}}{{with .Host}} {{.}}{{end}}
cafile {{.CAFile}}
certfile {{.CertFile}}
keyfile {{.KeyFile}}
tls_version tlsv1.2
require_certificate true
max_connections 16384

# Who it is says the certificate, and nothing that the client says itself: its
# common name is the user name and the client id.
use_identity_as_username true
use_username_as_clientid true
allow_anonymous false

# What it may do says the plugin. An operator keeps its list of robots, with the
# certificate of k8s4r-admin (k8s4r broker admit, k8s4r broker revoke).
plugin {{.Plugin}}
plugin_opt_config_file {{.Security}}

max_packet_size {{.MaxPacket}}
message_size_limit {{.MaxPayload}}
max_inflight_messages 64
max_queued_messages 65535
max_queued_bytes 67108864
max_qos 1
max_topic_alias 0
persistent_client_expiration 1d
persistence false
set_tcp_nodelay true
`))

func (c Config) conf() ([]byte, error) {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, fmt.Errorf("address %q must look like :8883 or 192.0.2.1:8883", c.Listen)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, fmt.Errorf("address %q: its port must be a number from 1 to 65535", c.Listen)
	}
	paths := []string{c.path(c.CAFile), c.path(c.CertFile), c.path(c.KeyFile), c.Plugin, c.path(SecurityFile), host}
	for _, p := range paths {
		if strings.ContainsFunc(p, func(r rune) bool { return r < ' ' }) {
			return nil, fmt.Errorf("%q does not fit into a line of %s", p, ConfFile)
		}
	}
	if c.Plugin == "" {
		return nil, errors.New("the path of mosquitto_dynamic_security.so is missing")
	}
	var b bytes.Buffer
	err = text.Execute(&b, map[string]any{
		"Host": host, "Port": port, "CAFile": paths[0], "CertFile": paths[1], "KeyFile": paths[2], "Plugin": c.Plugin, "Security": paths[4],
		"MaxPayload": wire.MaxPayload, "MaxPacket": wire.MaxPayload + 16<<10,
	})
	return b.Bytes(), err
}

func (c Config) path(file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(c.Dir, file)
}

// security is the plugin's first list. It keeps the file itself from then on.
func (c Config) security() ([]byte, error) {
	list := struct {
		Default map[string]bool `json:"defaultACLAccess"`
		Clients []client        `json:"clients"`
		Groups  []struct{}      `json:"groups"`
		Roles   []role          `json:"roles"`
	}{
		Default: map[string]bool{"publishClientSend": false, "publishClientReceive": false, "subscribe": false, "unsubscribe": true},
		Clients: []client{{ServerName, []roleName{{ServerName}}}, {ConsoleName, []roleName{{ConsoleName}}}, {AdminName, []roleName{{AdminName}}}},
		Groups:  []struct{}{},
		Roles:   []role{serverRole(), consoleRole(), adminRole()},
	}
	for _, id := range c.Robots {
		if err := validRobot(id); err != nil {
			return nil, err
		}
		list.Clients = append(list.Clients, robotClient(id))
		list.Roles = append(list.Roles, robotRole(id))
	}
	out, err := json.MarshalIndent(list, "", "  ")
	return append(out, '\n'), err
}
