package mosquitto

import (
	"encoding/json"

	"k8s4r.io/k8s4r/internal/protocol/acl"
	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

const (
	// ControlTopic is where the plugin receives the commands that Admit and Revoke
	// return.
	ControlTopic = "$CONTROL/dynamic-security/v1"
	// ServerName is the common name of the server's certificate.
	ServerName = identity.ServerName
	// ConsoleName is the common name of the console's certificate.
	ConsoleName = identity.ConsoleName
	// AdminName is the common name of the certificate that may send commands to the
	// plugin. It differs from the server's, because a client ID has one connection.
	AdminName = identity.AdminName
)

// The plugin's names of the actions that a rule allows.
const (
	aclPublish   = "publishClientSend"
	aclReceive   = "publishClientReceive"
	aclSubscribe = "subscribeLiteral"
)

// rule allows one action on the topics of one filter.
type rule struct {
	Type  string `json:"acltype"`
	Topic string `json:"topic"`
	Allow bool   `json:"allow"`
}

type role struct {
	Name  string `json:"rolename"`
	Rules []rule `json:"acls"`
}

type roleName struct {
	Name string `json:"rolename"`
}

// client has no password: the listener requires its certificate.
type client struct {
	Name  string     `json:"username"`
	Roles []roleName `json:"roles"`
}

// newRole returns a role that may publish and subscribe to these filters.
func newRole(name string, publish, subscribe []string) role {
	r := role{Name: name}
	for _, allowed := range []struct {
		action  string
		filters []string
	}{{aclPublish, publish}, {aclSubscribe, subscribe}, {aclReceive, subscribe}} {
		for _, filter := range allowed.filters {
			r.Rules = append(r.Rules, rule{allowed.action, filter, true})
		}
	}
	return r
}

// tableRole returns a role with the permissions of a client of the table.
func tableRole(name string, c acl.Client) role {
	return newRole(name, c.PublishFilters(), c.SubscribeFilters())
}

func robotRole(id string) role {
	return tableRole(robotRoleName(id), acl.Client{Role: acl.Robot, RobotID: id})
}

// robotRoleName returns a name that differs from those of all other roles.
func robotRoleName(id string) string { return "robot/" + id }

func robotClient(id string) client { return client{id, []roleName{{robotRoleName(id)}}} }

// programRoles returns the roles of the server, the console and the operator. The
// server cannot send commands: a stolen server certificate could otherwise grant
// itself any right.
func programRoles() []role {
	return []role{
		tableRole(ServerName, acl.Client{Role: acl.Server}),
		tableRole(ConsoleName, acl.Client{Role: acl.Console}),
		newRole(AdminName, []string{ControlTopic}, []string{ControlTopic + "/response"}),
	}
}

// command is a command of the plugin.
type command map[string]any

// AdmitCommands returns the commands by which the plugin admits a robot.
func AdmitCommands(robotID string) ([]byte, error) {
	if err := wire.ValidateRobotID(robotID); err != nil {
		return nil, err
	}
	r, c := robotRole(robotID), robotClient(robotID)
	return encodeCommands(
		command{"command": "createRole", "rolename": r.Name, "acls": r.Rules},
		command{"command": "createClient", "username": c.Name, "roles": c.Roles},
	)
}

// RevokeCommands returns the commands by which the plugin disconnects a robot and refuses
// it from then on.
func RevokeCommands(robotID string) ([]byte, error) {
	if err := wire.ValidateRobotID(robotID); err != nil {
		return nil, err
	}
	return encodeCommands(
		command{"command": "deleteClient", "username": robotID},
		command{"command": "deleteRole", "rolename": robotRoleName(robotID)},
	)
}

func encodeCommands(commands ...command) ([]byte, error) {
	return json.Marshal(map[string][]command{"commands": commands})
}

// clientsOf returns one client for each role, with the role's name.
func clientsOf(roles []role) (clients []client) {
	for _, r := range roles {
		clients = append(clients, client{r.Name, []roleName{{r.Name}}})
	}
	return clients
}
