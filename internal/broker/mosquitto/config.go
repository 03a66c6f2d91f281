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

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Names of the files.
const (
	ConfFile     = "mosquitto.conf"
	SecurityFile = "dynamic-security.json"
)

// Config configures Mosquitto.
type Config struct {
	// Listen is an address such as ":8883". Without a host, Mosquitto listens on all
	// interfaces.
	Listen string
	// Dir is the directory of the files on the broker's machine. Mosquitto updates
	// SecurityFile there.
	Dir string
	// CAFile (the certificates that sign those of clients), CertFile and KeyFile are
	// PEM files. Relative paths are below Dir.
	CAFile, CertFile, KeyFile string
	// CRLFile is the revocation list of the server (--robot-crl-file). If empty, there is none.
	// Mosquitto refuses all robots when it is missing or has expired.
	CRLFile string
	// Plugin is the path of mosquitto_dynamic_security.so.
	Plugin string
	// Robots are the IDs of the robots that are admitted from the start.
	Robots []string
}

// Files returns the contents of ConfFile and SecurityFile by file name.
func (c Config) Files() (map[string][]byte, error) {
	conf, err := c.renderConf()
	if err != nil {
		return nil, err
	}
	security, err := c.renderSecurity()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{ConfFile: conf, SecurityFile: security}, nil
}

// confTemplate is mosquitto.conf, with the limits of the embedded broker.
var confTemplate = template.Must(template.New("").Parse(`# Mosquitto for K8s4r. Only TLS, only with a certificate.
listener {{.Port}}{{with .Host}} {{.}}{{end}}
cafile {{.CAFile}}
certfile {{.CertFile}}
keyfile {{.KeyFile}}
{{with .CRLFile}}crlfile {{.}}
{{end}}tls_version tlsv1.2
require_certificate true
max_connections 16384

# The common name of the certificate is the user name and the client ID. What the
# client itself sends as its name is ignored.
use_identity_as_username true
use_username_as_clientid true
allow_anonymous false

# The plugin has the permissions. Operators add and remove robots with the
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

func (c Config) renderConf() ([]byte, error) {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, fmt.Errorf("address %q: must look like :8883 or 192.0.2.1:8883", c.Listen)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, fmt.Errorf("address %q: the port must be a number from 1 to 65535", c.Listen)
	}
	paths := []string{c.absolutePath(c.CAFile), c.absolutePath(c.CertFile), c.absolutePath(c.KeyFile), c.Plugin, c.absolutePath(SecurityFile), host, c.CRLFile}
	for _, p := range paths {
		if strings.ContainsFunc(p, func(r rune) bool { return r < ' ' }) {
			return nil, fmt.Errorf("%q: must not contain control characters, because it is written to one line of %s", p, ConfFile)
		}
	}
	if c.Plugin == "" {
		return nil, errors.New("the path of mosquitto_dynamic_security.so is missing")
	}
	crl := c.CRLFile
	if crl != "" {
		crl = c.absolutePath(crl)
	}
	var b bytes.Buffer
	err = confTemplate.Execute(&b, map[string]any{
		"Host": host, "Port": port, "CAFile": paths[0], "CertFile": paths[1], "KeyFile": paths[2], "Plugin": c.Plugin, "Security": paths[4], "CRLFile": crl,
		"MaxPayload": wire.MaxPayload, "MaxPacket": wire.MaxPayload + 16<<10,
	})
	return b.Bytes(), err
}

func (c Config) absolutePath(file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(c.Dir, file)
}

// renderSecurity returns the plugin's initial state. The plugin updates the file
// from then on.
func (c Config) renderSecurity() ([]byte, error) {
	roles := programRoles()
	list := struct {
		Default map[string]bool `json:"defaultACLAccess"`
		Clients []client        `json:"clients"`
		Groups  []struct{}      `json:"groups"`
		Roles   []role          `json:"roles"`
	}{
		Default: map[string]bool{"publishClientSend": false, "publishClientReceive": false, "subscribe": false, "unsubscribe": true},
		Clients: clientsOf(roles),
		Groups:  []struct{}{},
		Roles:   roles,
	}
	for _, id := range c.Robots {
		if err := wire.ValidateRobotID(id); err != nil {
			return nil, err
		}
		list.Clients = append(list.Clients, robotClient(id))
		list.Roles = append(list.Roles, robotRole(id))
	}
	out, err := json.MarshalIndent(list, "", "  ")
	return append(out, '\n'), err
}
