package test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/testkit"
)

// TestUp_RenewsCertificatesWithoutRestart waits until every certificate of the start has expired.
func TestUp_RenewsCertificatesWithoutRestart(t *testing.T) {
	t.Parallel()
	up := testkit.StartNewUp(t, "--robots", "0", "--without", "console", "--cluster-certificate-duration", "1m", "--metrics-address", "127.0.0.1:0")
	ctx := t.Context()
	c := clientOf(t, up) // connected before the first renewal
	first, served := storedCertificates(t, up), servedCertificate(t, up)
	watch, err := c.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()

	testkit.EventuallyNoError(t, 3*time.Minute, "all certificates of the start have expired", func() error {
		if _, err := c.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); isRefusal(err) {
			t.Fatalf("a client of before: %v", err)
		} else if err != nil {
			return err // the client has a new certificate, and closes its connections
		}
		for name, was := range first {
			if now := storedCertificates(t, up)[name]; time.Now().Before(was.NotAfter) || now.Equal(was) {
				return fmt.Errorf("%s is valid until %s, was until %s", name, now.NotAfter, was.NotAfter)
			}
		}
		return nil
	})
	testkit.Eventually(t, time.Minute, "the API server serves another certificate", func() bool { return !servedCertificate(t, up).Equal(served) })

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "says", Namespace: "default"}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "none", Command: []string{"echo", "still here"}}},
	}}
	if _, err := c.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyNoError(t, time.Minute, "scheduler, node and the API server's client of the node work", func() error {
		out, err := up.RunProgram("k8s4r", "kubectl", "logs", "says")
		if err == nil && !strings.Contains(out, "still here") {
			err = fmt.Errorf("log:\n%s", out)
		}
		return err
	})
	testkit.EventuallyNoError(t, time.Minute, "doctor and metrics show the expiry", func() error { return checkExpiry(up) })
}

// isRefusal reports whether the API server has refused a request, or the client the server. Other
// errors have many texts, which depend on when the connection was closed; clients repeat such requests.
func isRefusal(err error) bool {
	_, ofServer := errors.AsType[*apierrors.StatusError](err)
	_, ofClient := errors.AsType[*tls.CertificateVerificationError](err)
	return ofServer || ofClient
}

// storedCertificates returns the certificates in the files of `up` that are renewed.
func storedCertificates(t *testing.T, up *testkit.Up) map[string]*x509.Certificate {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(up.DataDir, "pki", "*.crt"))
	if err != nil || len(files) < 7 {
		t.Fatalf("%q, %v", files, err)
	}
	all := map[string]*x509.Certificate{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found, err := keyfile.ParseCertificates(text)
		if err != nil {
			t.Fatal(err)
		}
		if !found[0].IsCA {
			all[filepath.Base(file)] = found[0]
		}
	}
	return all
}

// servedCertificate returns the certificate of the API server.
func servedCertificate(t *testing.T, up *testkit.Up) *x509.Certificate {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(up.Server, "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

// checkExpiry returns an error unless doctor and the metrics show all certificates.
func checkExpiry(up *testkit.Up) error {
	answer, err := http.Get(up.MetricsURL)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	metrics, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	out, err := up.RunProgram("k8s4r", "doctor")
	if err != nil || !strings.Contains(out, "OK    certificates: renewed in time; time left: admin ") {
		return fmt.Errorf("doctor: %w\n%s", err, out)
	}
	for _, name := range []string{"admin", "apiserver", "cluster-ca", "controller-manager", "kubelet", "kubelet-client", "robots-ca", "scheduler"} {
		if !strings.Contains(string(metrics), `k8s4r_certificate_expiry_timestamp_seconds{certificate="`+name+`"}`) || !strings.Contains(out, " "+name+" ") {
			return fmt.Errorf("%s is missing in metrics or doctor:\n%s", name, out)
		}
	}
	return nil
}
