package mosquitto

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s4r.io/k8s4r/internal/wire"
)

const (
	// ControlTopic is where the plugin takes in what Admit and Revoke return.
	ControlTopic = "$CONTROL/dynamic-security/v1"
	// ServerName is the common name of the server's certificate.
	ServerName = "k8s4r-server"
	// ConsoleName is the common name of the console's certificate.
	ConsoleName = "k8s4r-console"

	// AdminName is the common name of the certificate by which an operator talks to
	// the plugin. Another one than the server's: a client id has one connection.
	AdminName = "k8s4r-admin"
)

// The names that the plugin has for what a client does.
const (
	says       = "publishClientSend"
	hears      = "publishClientReceive"
	subscribes = "subscribeLiteral"
)

// rule allows one thing on the topics of one filter.
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

// client has no password: its certificate has been judged before.
type client struct {
	Name  string     `json:"username"`
	Roles []roleName `json:"roles"`
}

func allow(kind string, topics ...string) (rules []rule) {
	for _, topic := range topics {
		rules = append(rules, rule{kind, topic, true})
	}
	return rules
}

// fromRobot are the filters of what a robot says.
func fromRobot(id string) []string {
	return []string{
		wire.RobotTopic(id, wire.KindRegister), wire.RobotTopic(id, wire.KindHeartbeat), wire.RobotTopic(id, wire.KindPresence),
		wire.TaskTopic(id, "+", wire.KindStatus), wire.TaskTopic(id, "+", wire.KindLogs),
	}
}

func robotRole(id string) role {
	own := wire.RobotSubscriptions(id)
	return role{robotRoleName(id), slices.Concat(allow(says, fromRobot(id)...), allow(subscribes, own...), allow(hears, own...))}
}

// robotRoleName is one that the server's role cannot have.
func robotRoleName(id string) string { return "robot/" + id }

func robotClient(id string) client { return client{id, []roleName{{robotRoleName(id)}}} }

// serverRole is that of the server. It does not keep the plugin's list: whoever has
// the server's certificate could write itself any right, and keep it.
func serverRole() role {
	own := wire.ServerSubscriptions()
	return role{ServerName, slices.Concat(allow(says, wire.RobotSubscriptions("+")...), allow(subscribes, own...), allow(hears, own...))}
}

// consoleRole is that of the console, which hears nobody.
func consoleRole() role { return role{ConsoleName, allow(says, wire.EventTopics()...)} }

func adminRole() role {
	answers := ControlTopic + "/response"
	return role{AdminName, slices.Concat(allow(says, ControlTopic), allow(subscribes, answers), allow(hears, answers))}
}

// command is one of the plugin's.
type command map[string]any

// Admit is what the plugin is told of a robot that may speak from now on.
func Admit(robotID string) ([]byte, error) {
	if err := validRobot(robotID); err != nil {
		return nil, err
	}
	r, c := robotRole(robotID), robotClient(robotID)
	return encode(
		command{"command": "createRole", "rolename": r.Name, "acls": r.Rules},
		command{"command": "createClient", "username": c.Name, "roles": c.Roles},
	)
}

// Revoke is what the plugin is told of a robot that may not speak any more. Its
// connection is cut.
func Revoke(robotID string) ([]byte, error) {
	if err := validRobot(robotID); err != nil {
		return nil, err
	}
	return encode(
		command{"command": "deleteClient", "username": robotID},
		command{"command": "deleteRole", "rolename": robotRoleName(robotID)},
	)
}

func encode(commands ...command) ([]byte, error) {
	return json.Marshal(map[string][]command{"commands": commands})
}

// validRobot refuses a name that would be a wildcard, or the server's.
func validRobot(id string) error {
	if id == ServerName || id == ConsoleName || id == AdminName {
		return fmt.Errorf("robot id %q is not a robot's: the server, the console or an operator has that name", id)
	}
	return wire.ValidRobotID(id)
}
