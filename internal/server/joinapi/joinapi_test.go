package joinapi

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/platform/connlimit"
	"k8s4r.io/k8s4r/internal/platform/jointoken"
	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/server/ca"
	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

// bench is a server with a token for namespace hall.
type bench struct {
	t      *testing.T
	c      client.Client
	url    string
	auth   *ca.Authority
	token  string
	tokens *jointoken.Store
	// keepsConnections leaves the connection of each request open.
	keepsConnections bool
	// now and uptime stand still, so that the machine's speed does not matter for the rate limits.
	now    time.Time
	uptime time.Duration
	caDir  string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{robotv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	token, text := jointoken.NewToken(jointoken.Token{Expires: time.Now().Add(time.Hour), Uses: 5, Robots: "r*", Namespace: "hall", Labels: map[string]string{"site": "a"}})
	c := fakeapi.NewBuilder(scheme).WithStatusSubresource(&robotv1.Robot{}).WithObjects(token.ToSecret("k8s4r-system")).
		WithIndex(&corev1.Secret{}, "type", func(o client.Object) []string { return []string{string(o.(*corev1.Secret).Type)} }).Build()
	b := &bench{t: t, now: time.Now(), caDir: t.TempDir()}
	auth, err := ca.OpenManaged(b.caDir, ca.DefaultLifetime)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	tokens := &jointoken.Store{Client: c, Live: c, Namespace: "k8s4r-system", Now: time.Now}
	New(Config{
		Authority: auth, Tokens: tokens, Client: c, Live: c,
		MQTTURL: func() string { return "mqtts://broker:8883" }, CountRequest: func(string, string) {}, Now: func() time.Time { return b.now }, Uptime: func() time.Duration { return b.uptime }, Log: logr.Discard(),
	}).Register(mux)
	s := httptest.NewUnstartedServer(mux)
	ours := &tls.Config{ClientAuth: tls.RequestClientCert, GetCertificate: auth.ServingCertificate("127.0.0.1")}
	// The test server has a certificate of its own, which would come first.
	s.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return ours, nil }}
	connections := connlimit.New(connlimit.Config{PerIdentity: 2})
	s.Listener, s.Config.ConnContext = connections.Listen(s.Listener), connections.WithConn
	s.StartTLS()
	t.Cleanup(s.Close)
	b.c, b.url, b.auth, b.token, b.tokens = c, s.URL, auth, text, tokens
	return b
}

// machine is a machine with a key.
type machine struct {
	key  *ecdsa.PrivateKey
	id   string
	cert *x509.Certificate
}

func newMachine(t *testing.T, id string) *machine {
	t.Helper()
	key, _, err := keyfile.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return &machine{key: key, id: identity.KeyFingerprint([]byte(id))}
}

func requestOf(t *testing.T, key crypto.Signer, machine string) identity.CertificateRequest {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return identity.CertificateRequest{CSR: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), Machine: machine, Hostname: "host"}
}

func (b *bench) join(m *machine, robot string) (int, identity.CertificateResponse) {
	b.t.Helper()
	return b.post(identity.JoinPath, m, identity.JoinRequest{RobotID: robot, Token: b.token, CertificateRequest: requestOf(b.t, m.key, m.id)})
}

func (b *bench) renew(m *machine) (int, identity.CertificateResponse) {
	b.t.Helper()
	return b.post(identity.RenewPath, m, requestOf(b.t, m.key, m.id))
}

func (b *bench) post(path string, m *machine, body any) (int, identity.CertificateResponse) {
	b.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	c := &tls.Config{RootCAs: b.auth.TrustPool()}
	if m != nil && m.cert != nil {
		c.Certificates = []tls.Certificate{{Certificate: [][]byte{m.cert.Raw}, PrivateKey: m.key}}
	}
	transport := &http.Transport{TLSClientConfig: c}
	if b.keepsConnections {
		b.t.Cleanup(transport.CloseIdleConnections)
	} else {
		defer transport.CloseIdleConnections()
	}
	answer, err := (&http.Client{Transport: transport}).Post(b.url+path, "application/json", bytes.NewReader(text))
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	a, err := identity.Decode[identity.CertificateResponse](answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if a.State == identity.StateIssued {
		all, err := keyfile.ParseCertificates([]byte(a.Certificate))
		if err != nil {
			b.t.Fatal(err)
		}
		m.cert = all[0]
	}
	return answer.StatusCode, a
}

func (b *bench) robot(name string) *robotv1.Robot {
	b.t.Helper()
	var r robotv1.Robot
	if err := b.c.Get(b.t.Context(), client.ObjectKey{Namespace: "hall", Name: name}, &r); err != nil {
		b.t.Fatal(err)
	}
	return &r
}

// acceptRequest accepts the requested identity, as the manager does.
func (b *bench) acceptRequest(name string) {
	b.t.Helper()
	r := b.robot(name)
	requested := r.Status.Identity.Requested
	r.Status.Identity.Accepted = &robotv1.AcceptedIdentity{Key: requested.Key, Machine: requested.Machine}
	if err := b.c.Status().Update(b.t.Context(), r); err != nil {
		b.t.Fatal(err)
	}
}

// forgetCertificates removes the record of earlier certificates, as when they expire.
func (b *bench) forgetCertificates(name string) {
	b.t.Helper()
	r := b.robot(name)
	r.Status.Identity.EarlierCertificates = nil
	if err := b.c.Status().Update(b.t.Context(), r); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) setIdentitySpec(name string, s robotv1.RobotIdentitySpec) {
	b.t.Helper()
	r := b.robot(name)
	r.Spec.Identity = &s
	if err := b.c.Update(b.t.Context(), r); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) expectResponse(status int, a identity.CertificateResponse, want int, reason, text string) {
	b.t.Helper()
	if status != want || a.Reason != reason || !strings.Contains(a.Message, text) {
		b.t.Errorf("%d %s %q, want %d %s with %q", status, a.Reason, a.Message, want, reason, text)
	}
}

func TestJoin_IssuesAndRenewsCertificate(t *testing.T) {
	b := newBench(t)
	m := newMachine(t, "m1")
	status, a := b.join(m, "r1")
	b.expectResponse(status, a, 202, identity.ReasonWaiting, "k8s4r robot approve r1")
	if r := b.robot("r1"); r.Spec.Labels["site"] != "a" || r.Status.Identity.Requested.Key == "" || r.Status.Identity.Requested.Token == "" {
		t.Errorf("%+v", r)
	}
	b.acceptRequest("r1")
	if status, a = b.join(m, "r1"); status != 200 || a.MQTTURL != "mqtts://broker:8883" || m.cert.Subject.CommonName != "r1" {
		t.Fatalf("%d %+v", status, a)
	}
	first := m.cert.SerialNumber
	if status, _ = b.renew(m); status != 200 || m.cert.SerialNumber.Cmp(first) == 0 {
		t.Errorf("%d", status)
	}
	if c := b.robot("r1").Status.Identity.Certificate; c == nil || c.SerialNumber != m.cert.SerialNumber.Text(16) || !c.NotAfter.Equal(&metav1.Time{Time: m.cert.NotAfter}) {
		t.Errorf("the recorded certificate is %+v", c)
	}
	if used := b.tokenUses(); used != 1 {
		t.Errorf("the token was used %d times", used)
	}
}

func (b *bench) tokenUses() int {
	b.t.Helper()
	id, _, _ := strings.Cut(b.token, ".")
	var s corev1.Secret
	if err := b.c.Get(b.t.Context(), client.ObjectKey{Namespace: "k8s4r-system", Name: jointoken.SecretName(id)}, &s); err != nil {
		b.t.Fatal(err)
	}
	token, err := jointoken.FromSecret(&s)
	if err != nil {
		b.t.Fatal(err)
	}
	return len(token.Used)
}

func TestJoin_Refusals(t *testing.T) {
	b := newBench(t)
	m := newMachine(t, "m1")
	b.join(m, "r1")
	b.acceptRequest("r1")
	b.join(m, "r1")

	reimaged, clone := newMachine(t, "m1"), newMachine(t, "m2")
	status, a := b.join(reimaged, "r1")
	b.expectResponse(status, a, 403, identity.ReasonReimaged, "k8s4r robot approve r1")
	status, a = b.join(clone, "r1")
	b.expectResponse(status, a, 403, identity.ReasonCloned, "another machine")
	if got := b.robot("r1").Status.Identity.Requested; got.Key != identity.KeyFingerprint(spki(t, clone.key)) {
		t.Errorf("the request of the clone was not recorded: %+v", got)
	}
	copied := &machine{key: m.key, id: clone.id, cert: m.cert}
	status, a = b.renew(copied)
	b.expectResponse(status, a, 403, identity.ReasonCloned, "another machine")

	b.setIdentitySpec("r1", robotv1.RobotIdentitySpec{ApprovedKey: identity.KeyFingerprint(spki(t, reimaged.key))})
	status, a = b.join(reimaged, "r1")
	b.expectResponse(status, a, 202, identity.ReasonWaiting, "approved")

	other := newMachine(t, "m3")
	status, a = b.post(identity.RenewPath, m, requestOf(t, other.key, m.id))
	b.expectResponse(status, a, 403, identity.ReasonBadRequest, "must be for the key of the certificate")
	status, a = b.renew(other)
	b.expectResponse(status, a, 401, identity.ReasonUnauthorized, "without one, join with a token")

	b.setIdentitySpec("r1", robotv1.RobotIdentitySpec{Revoked: true, RevokedReason: "stolen"})
	status, a = b.renew(m)
	b.expectResponse(status, a, 403, identity.ReasonRevoked, "stolen")
	status, a = b.join(other, "r1")
	b.expectResponse(status, a, 403, identity.ReasonRevoked, "k8s4r robot approve r1")

	if err := b.c.Delete(t.Context(), b.robot("r1")); err != nil {
		t.Fatal(err)
	}
	status, a = b.renew(m)
	b.expectResponse(status, a, 403, identity.ReasonUnknown, "join with a token")
}

// TestRenew_OneRobotOfTwoWithOneID has a tenant whose Robot has the id of another namespace's, of
// the same second. Only the Robot that all programs use can renew.
func TestRenew_OneRobotOfTwoWithOneID(t *testing.T) {
	for uid, want := range map[string]int{"0": http.StatusAccepted, "z": http.StatusOK} {
		t.Run(uid, func(t *testing.T) {
			b := newBench(t)
			m := newMachine(t, "m1")
			b.join(m, "r1")
			b.acceptRequest("r1")
			b.join(m, "r1")
			ours := b.robot("r1")
			if err := b.c.Delete(t.Context(), ours); err != nil {
				t.Fatal(err)
			}
			ours.UID, ours.ResourceVersion = "m", ""
			// The cache lists robots by namespace.
			theirs := &robotv1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "r1", UID: types.UID(uid)}, Spec: robotv1.RobotSpec{RobotID: "r1"}}
			ours.CreationTimestamp, theirs.CreationTimestamp = metav1.NewTime(time.Unix(1, 0)), metav1.NewTime(time.Unix(1, 0))
			for _, r := range []*robotv1.Robot{ours, theirs} {
				if err := b.c.Create(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			if status, a := b.renew(m); status != want {
				t.Errorf("%d %+v, want %d", status, a, want)
			}
		})
	}
}

func spki(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestJoin_RejectsInvalidRequests(t *testing.T) {
	b := newBench(t)
	m := newMachine(t, "m1")
	status, a := b.join(m, identity.ServerName)
	b.expectResponse(status, a, 400, identity.ReasonBadRequest, "reserved for a program")
	status, a = b.join(m, "R1/..")
	b.expectResponse(status, a, 400, identity.ReasonBadRequest, "robotId")
	status, a = b.join(m, "x1")
	b.expectResponse(status, a, 403, identity.ReasonToken, "matches r*")
	good := b.token
	b.token = "abcdef.0123456789abcdef"
	later := time.Now().Add(time.Minute)
	b.tokens.Now = func() time.Time { return later }
	status, a = b.join(m, "r1")
	b.expectResponse(status, a, 403, identity.ReasonToken, "unknown join token, or wrong secret")
	status, a = b.join(m, "r1")
	b.expectResponse(status, a, 429, identity.ReasonTooMany, "at most once a second")
	b.token = good
	status, a = b.post(identity.JoinPath, nil, identity.JoinRequest{RobotID: "r1", Token: good, CertificateRequest: identity.CertificateRequest{CSR: "x"}})
	b.expectResponse(status, a, 400, identity.ReasonBadRequest, "csr: ")
	status, a = b.post(identity.JoinPath, nil, []int{1})
	b.expectResponse(status, a, 400, identity.ReasonBadRequest, "not a JSON object")
	status, a = b.post(identity.JoinPath, nil, map[string]string{"hostname": strings.Repeat("a", identity.MaxBody)})
	b.expectResponse(status, a, 400, identity.ReasonBadRequest, "bytes")
	if b.tokenUses() != 0 {
		t.Error("a refused robot has used up the token")
	}

	elsewhere := &robotv1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: "yard", Name: "r9"}, Spec: robotv1.RobotSpec{RobotID: "r9"}}
	if err := b.c.Create(t.Context(), elsewhere); err != nil {
		t.Fatal(err)
	}
	status, a = b.join(m, "r9")
	b.expectResponse(status, a, 403, identity.ReasonTaken, "another namespace")
}

// deadlineRecorder records the read deadline of a request.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (b *deadlineRecorder) SetReadDeadline(t time.Time) error {
	b.until = t
	return nil
}

func TestJoin_SetsReadDeadline(t *testing.T) {
	w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	h := New(Config{Now: time.Now, Log: logr.Discard(), CountRequest: func(string, string) {}})
	mux := http.NewServeMux()
	h.Register(mux)
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, identity.JoinPath, strings.NewReader("{")))
	if left := time.Until(w.until); left <= 0 || left > readTimeout {
		t.Errorf("the read deadline is in %v", left)
	}
}

func TestLimits_BoundRequestsOfOneAddress(t *testing.T) {
	l := newLimits()
	now := time.Now()
	allowed := 0
	for range 10 * requestBurst {
		if l.Allow("10.0.0.1", now) {
			allowed++
		}
	}
	if allowed != requestBurst || !l.Allow("10.0.0.2", now) || !l.Allow("10.0.0.1", now.Add(time.Second)) {
		t.Errorf("%d requests were allowed", allowed)
	}
	if l.MaxNames != maxSources {
		t.Errorf("%d addresses are kept", l.MaxNames)
	}
}

// A faulty robot, or a stolen certificate, must not keep the server busy with signatures. Other
// robots can renew meanwhile.
func TestRenew_LimitsOneRobot(t *testing.T) {
	b := newBench(t)
	first, second := newMachine(t, "m1"), newMachine(t, "m2")
	for name, m := range map[string]*machine{"r1": first, "r2": second} {
		b.join(m, name)
		b.acceptRequest(name)
		status, a := b.join(m, name)
		b.expectResponse(status, a, http.StatusOK, "", "")
	}
	for range renewalBurst {
		status, a := b.renew(first)
		b.expectResponse(status, a, http.StatusOK, "", "")
		b.forgetCertificates("r1")
	}
	status, a := b.renew(first)
	b.expectResponse(status, a, http.StatusTooManyRequests, identity.ReasonTooMany, "robot r1 renews too often")
	status, a = b.renew(second)
	b.expectResponse(status, a, http.StatusOK, "", "")
}

// All certificates that are valid can be revoked, so their number has a maximum.
func TestRenew_RecordsAllValidCertificates(t *testing.T) {
	b := newBench(t)
	m := newMachine(t, "m1")
	b.join(m, "r1")
	b.acceptRequest("r1")
	status, a := b.join(m, "r1")
	b.expectResponse(status, a, http.StatusOK, "", "")
	issued := []string{m.cert.SerialNumber.Text(16)}
	for range robotv1.MaxEarlierCertificates {
		status, a := b.renew(m)
		b.expectResponse(status, a, http.StatusOK, "", "")
		issued = append(issued, m.cert.SerialNumber.Text(16))
	}
	var recorded []string
	for _, c := range b.robot("r1").Status.Identity.IssuedCertificates() {
		recorded = append(recorded, c.SerialNumber)
		if c.Key != identity.KeyFingerprint(spki(t, m.key)) {
			t.Errorf("%+v", c)
		}
	}
	if !slices.Equal(recorded, issued) {
		t.Errorf("recorded %v, issued %v", recorded, issued)
	}
	status, a = b.renew(m)
	b.expectResponse(status, a, http.StatusTooManyRequests, identity.ReasonTooMany, "the robot has 17 valid certificates; the first of them expires at")
	b.auth.SetRobotLifetime(-time.Hour) // the certificates of before are valid, this one is not
	b.forgetCertificates("r1")
	b.renew(m)
	if earlier := b.robot("r1").Status.Identity.EarlierCertificates; len(earlier) != 1 {
		t.Errorf("%d earlier certificates", len(earlier))
	}
	b.auth.SetRobotLifetime(time.Hour)
	b.renew(m)
	if earlier := b.robot("r1").Status.Identity.EarlierCertificates; len(earlier) != 1 {
		t.Errorf("%d earlier certificates, and one of them has expired", len(earlier))
	}
}

func TestRecordCertificate_ForgetsThoseOfAClockThatWasAhead(t *testing.T) {
	now := time.Now()
	id := &robotv1.RobotIdentity{}
	record := func(notAfter time.Time) error {
		return recordCertificate(id, robotv1.IssuedCertificate{SerialNumber: "1", NotAfter: metav1.NewTime(notAfter)}, now)
	}
	for range robotv1.MaxEarlierCertificates + 1 {
		if err := record(now.AddDate(1, 0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := record(now.Add(time.Hour)); err != nil || len(id.EarlierCertificates) != 0 {
		t.Errorf("%v, %d earlier certificates", err, len(id.EarlierCertificates))
	}
}

// All robots of a site may have one address, so their connections count by robot.
func TestJoin_CountsConnectionsByRobot(t *testing.T) {
	b := newBench(t)
	first, second := newMachine(t, "m1"), newMachine(t, "m2")
	for name, m := range map[string]*machine{"r1": first, "r2": second} {
		b.join(m, name)
		b.acceptRequest(name)
	}
	b.keepsConnections = true
	status, a := b.join(first, "r1")
	b.expectResponse(status, a, http.StatusOK, "", "")
	status, a = b.renew(first)
	b.expectResponse(status, a, http.StatusOK, "", "")
	status, a = b.renew(first)
	b.expectResponse(status, a, http.StatusTooManyRequests, identity.ReasonTooMany, "too many connections")
	status, a = b.join(second, "r2")
	b.expectResponse(status, a, http.StatusOK, "", "")
}

// One machine can have any number of IPv6 addresses in its network.
func TestJoin_LimitsRequestsOfOneIPv6Network(t *testing.T) {
	start := time.Now()
	h := New(Config{Now: func() time.Time { return start }, Log: logr.Discard(), CountRequest: func(string, string) {}})
	mux := http.NewServeMux()
	h.Register(mux)
	post := func(address string) int {
		r := httptest.NewRequest(http.MethodPost, identity.JoinPath, strings.NewReader("{"))
		r.RemoteAddr = address
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w.Code
	}
	for i := range requestBurst {
		if got := post(fmt.Sprintf("[2001:db8::%x]:80", i+1)); got != http.StatusBadRequest {
			t.Fatalf("request %d gets %d", i, got)
		}
	}
	if got := post("[2001:db8::ffff]:80"); got != http.StatusTooManyRequests {
		t.Errorf("another address of the same network gets %d", got)
	}
	if got := post("[2001:db8:0:1::1]:80"); got != http.StatusBadRequest {
		t.Errorf("an address of another network gets %d", got)
	}
}
