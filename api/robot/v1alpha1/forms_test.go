package v1alpha1

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestTaskDefinition_ReadsFormsOfOlderProtocol(t *testing.T) {
	docker := func(fields string) string {
		return `{"name":"t","driver":"docker","config":{"dockerConfig":{"image":"x"` + fields + `}}}`
	}
	for _, row := range []struct{ name, in, want string }{
		{"a command that is a list", docker(`,"command":["sh","-c"],"args":["ls"]`), docker(`,"command":"sh","args":["-c","ls"]`)},
		{"a command that is a text", docker(`,"command":"sh","args":["-c"]`), docker(`,"command":"sh","args":["-c"]`)},
		{"an empty list", docker(`,"command":[]`), docker(``)},
		{"a command that has no form", docker(`,"command":{"a":5}`), docker(`,"command":"{\"a\":5}"`)},
		{"null", docker(`,"command":null,"ports":null,"volumes":null`), docker(``)},
		{"ports", docker(`,"ports":[{"hostPort":8080,"containerPort":80,"protocol":"UDP"},{"hostPort":1,"containerPort":2},"3:4"]`),
			docker(`,"ports":["8080:80/udp","1:2","3:4"]`)},
		{"a port that has no form", docker(`,"ports":[80,[1]]`), docker(`,"ports":["80","[1]"]`)},
		{"volumes", docker(`,"volumes":[{"hostPath":"/a","containerPath":"/b","readOnly":true},{"hostPath":"/a","mountPath":"/c"},"/d:/e"]`),
			docker(`,"volumes":["/a:/b:ro","/a:/c","/d:/e"]`)},
		{"a container with an execConfig",
			`{"name":"t","driver":"docker","config":{"execConfig":{"command":"sh","args":["-c"]},"dockerConfig":{"image":"x"}}}`,
			docker(`,"command":"sh","args":["-c"]`)},
		{"a container with two commands keeps both, which are refused",
			`{"name":"t","driver":"docker","config":{"execConfig":{"command":"sh"},"dockerConfig":{"image":"x","command":"y"}}}`,
			`{"name":"t","driver":"docker","config":{"execConfig":{"command":"sh"},"dockerConfig":{"image":"x","command":"y"}}}`},
		{"a classpath that is a list", `{"name":"t","driver":"java","config":{"javaConfig":{"jarPath":"a","classpath":["b","c"]}}}`,
			`{"name":"t","driver":"java","config":{"javaConfig":{"jarPath":"a","classpath":"b:c"}}}`},
		{"networks",
			`{"name":"t","driver":"exec","config":{},"resources":{"networks":[{"mbits":5,"ports":[{"name":"a"}],"reservedPorts":[{"label":"HTTP_API","value":80}],"dynamicPorts":[{"label":"db"}]}]}}`,
			`{"name":"t","driver":"exec","config":{},"resources":{"networks":[{"ports":[{"name":"a"},{"name":"http-api","port":80},{"name":"db"}],"mbits":5}]}}`},
	} {
		t.Run(row.name, func(t *testing.T) { requireSame[TaskDefinition](t, row.in, row.want) })
	}
}

func TestConstraint_ReadsFormsOfOlderProtocol(t *testing.T) {
	requireSame[Constraint](t, `{"ltarget":"${attr.os}","operand":"\"=\"","rTarget":"${attr.arch}"}`,
		`{"ltarget":"${robot.attr.os}","operand":"=","rTarget":"${robot.attr.arch}"}`)
}

// requireSame decodes both texts and fails the test if the values differ, also after a round trip.
func requireSame[T any](t *testing.T, in, want string) {
	t.Helper()
	var got, again, expected T
	if err := json.Unmarshal([]byte(in), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &expected); err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(got)
	wantText, _ := json.Marshal(expected)
	if string(text) != string(wantText) {
		t.Errorf("got %s, want %s", text, wantText)
	}
	if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(again, got) {
		t.Errorf("read again: %+v, %v", again, err)
	}
}
