package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

func TestPodLogsOf_ReadsThroughAPIServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/ns/pods/p/log" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
			return
		}
		io.WriteString(w, r.URL.RawQuery)
	}))
	defer server.Close()
	logs := newPodLogReader(&rest.Config{Host: server.URL})
	body, err := logs(t.Context(), "ns", "p", corev1.PodLogOptions{Container: "c", Follow: true, TailLines: ptr.To[int64](3)})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if text, err := io.ReadAll(body); err != nil || string(text) != "container=c&follow=true&tailLines=3&timestamps=false" {
		t.Errorf("%v: %s", err, text)
	}
	if _, err := logs(t.Context(), "ns", "gone", corev1.PodLogOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a Pod that is gone: %v", err)
	}
}
