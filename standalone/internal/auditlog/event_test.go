package auditlog

import (
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/archive"
)

func TestParseAction(t *testing.T) {
	at := time.Date(2026, 11, 24, 12, 0, 0, 5000, time.UTC)
	const rest = `"auditID":"i","stage":"ResponseComplete","requestReceivedTimestamp":"2026-11-24T12:00:00.000005Z"`
	for _, c := range []struct {
		name, line string
		want       archive.Action // zero: none
	}{
		{"a pause", `{"kind":"Event",` + rest + `,"verb":"patch","user":{"username":"anna"},"objectRef":{"resource":"jobs","apiGroup":"robot.k8s4r.io","namespace":"n","name":"j"},"responseStatus":{"code":200},` +
			`"annotations":{"k8s4r-actions/object":"j u","k8s4r-actions/namespace":"nu","k8s4r-actions/changes":"desiredState=paused"}}`,
			archive.Action{ID: "i", At: at, User: "anna", Verb: "patch", Kind: archive.Job, Namespace: "n", NamespaceUID: "nu", Name: "j", UID: "u", Did: "pause", Code: 200}},
		{"a create with a generated name, by an impersonated user", `{"kind":"Event",` + rest + `,"verb":"create","user":{"username":"root"},"impersonatedUser":{"username":"anna"},"objectRef":{"resource":"jobflows","apiGroup":"flow.volcano.sh","namespace":"n"},"responseStatus":{"code":201},` +
			`"annotations":{"k8s4r-actions/object":"f-x u","k8s4r-actions/changes":""}}`,
			archive.Action{ID: "i", At: at, User: "anna", Impersonator: "root", Verb: "create", Kind: archive.JobFlow, Namespace: "n", Name: "f-x", UID: "u", Did: "create", Code: 201}},
		{"a create by a patch", `{"kind":"Event",` + rest + `,"verb":"patch","user":{"username":"anna"},"objectRef":{"resource":"robots","apiGroup":"robot.k8s4r.io","namespace":"n","name":"r"},"responseStatus":{"code":201}}`,
			archive.Action{ID: "i", At: at, User: "anna", Verb: "patch", Kind: archive.Robot, Namespace: "n", Name: "r", Did: "create", Code: 201}},
		{"a deletion of many", `{"kind":"Event",` + rest + `,"verb":"deletecollection","user":{"username":"anna"},"objectRef":{"resource":"jobs","apiGroup":"batch.volcano.sh","namespace":"n"},"responseStatus":{"code":200},` +
			`"annotations":{"k8s4r-actions/object":"first u"}}`,
			archive.Action{ID: "i", At: at, User: "anna", Verb: "deletecollection", Kind: archive.VCJob, Namespace: "n", Did: "deletecollection", Code: 200}},
		{"a refused request", `{"kind":"Event",` + rest + `,"verb":"delete","user":{"username":"mallory"},"objectRef":{"resource":"robots","apiGroup":"robot.k8s4r.io","namespace":"n","name":"r"},"responseStatus":{"code":403}}`,
			archive.Action{ID: "i", At: at, User: "mallory", Verb: "delete", Kind: archive.Robot, Namespace: "n", Name: "r", Did: "delete", Code: 403}},
		{"a status that a user wrote", `{"kind":"Event",` + rest + `,"verb":"update","user":{"username":"anna"},"objectRef":{"resource":"jobs","apiGroup":"robot.k8s4r.io","namespace":"n","name":"j","subresource":"status"},"responseStatus":{"code":200}}`,
			archive.Action{ID: "i", At: at, User: "anna", Verb: "update", Kind: archive.Job, Namespace: "n", Name: "j", Did: "update status", Code: 200}},
		{"a Command", `{"kind":"Event",` + rest + `,"verb":"create","user":{"username":"anna"},"objectRef":{"resource":"commands","apiGroup":"bus.volcano.sh","namespace":"n"},"responseStatus":{"code":201},` +
			`"annotations":{"k8s4r-actions/object":"vj u","k8s4r-actions/changes":"command=AbortJob"}}`,
			archive.Action{ID: "i", At: at, User: "anna", Verb: "create", Kind: archive.VCJob, Namespace: "n", Name: "vj", UID: "u", Did: "abort", Code: 201}},
		{"a dry run", `{"kind":"Event",` + rest + `,"verb":"delete","user":{"username":"anna"},"objectRef":{"resource":"jobs","apiGroup":"robot.k8s4r.io","namespace":"n","name":"j"},"annotations":{"k8s4r-actions/dryRun":"true"}}`, archive.Action{}},
		{"a dry run by its URL", `{"kind":"Event",` + rest + `,"verb":"create","requestURI":"/x?dryRun=All","user":{"username":"anna"},"objectRef":{"resource":"jobs","apiGroup":"robot.k8s4r.io","namespace":"n","name":"j"}}`, archive.Action{}},
		{"what only looks like a dry run", `{"kind":"Event",` + rest + `,"verb":"patch","requestURI":"/x?fieldManager=dryRun=All","user":{"username":"anna"},"objectRef":{"resource":"jobs","apiGroup":"robot.k8s4r.io","namespace":"n","name":"j"},"responseStatus":{"code":200}}`,
			archive.Action{ID: "i", At: at, User: "anna", Verb: "patch", Kind: archive.Job, Namespace: "n", Name: "j", Did: "patch", Code: 200}},
		{"a deletion whose body decides", `{"kind":"Event",` + rest + `,"verb":"delete","requestURI":"/x?dryRun=All","user":{"username":"anna"},"objectRef":{"resource":"jobs","apiGroup":"robot.k8s4r.io","namespace":"n","name":"j"},"responseStatus":{"code":200}}`,
			archive.Action{ID: "i", At: at, User: "anna", Verb: "delete", Kind: archive.Job, Namespace: "n", Name: "j", Did: "delete", Code: 200}},
		{"the manager", `{"kind":"Event",` + rest + `,"verb":"create","user":{"username":"k8s4r-up"},"impersonatedUser":{"username":"system:serviceaccount:k8s4r-system:k8s4r-manager"},"objectRef":{"resource":"jobs","apiGroup":"robot.k8s4r.io","namespace":"n","name":"j"}}`, archive.Action{}},
		{"a read", `{"kind":"Event",` + rest + `,"verb":"get","user":{"username":"anna"},"objectRef":{"resource":"jobs","apiGroup":"robot.k8s4r.io","namespace":"n","name":"j"}}`, archive.Action{}},
		{"another kind", `{"kind":"Event",` + rest + `,"verb":"create","user":{"username":"anna"},"objectRef":{"resource":"pods","namespace":"n","name":"p"}}`, archive.Action{}},
		{"another stage", `{"kind":"Event","auditID":"i","stage":"ResponseStarted","verb":"create","user":{"username":"anna"},"objectRef":{"resource":"jobs","apiGroup":"robot.k8s4r.io"}}`, archive.Action{}},
		{"no event", `nonsense`, archive.Action{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, ok := parseAction([]byte(c.line)); ok != (c.want != archive.Action{}) || ok && got != c.want {
				t.Errorf("%+v, %v\nwant %+v", got, ok, c.want)
			}
		})
	}
}
