package console

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// ParsePublicURL returns the URL at which browsers open the console. It is nil if text is empty.
func ParsePublicURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" {
		return nil, errors.New("must have a scheme and a host, such as https://console.example.com")
	}
	if strings.TrimSuffix(u.Path, "/") != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("must have no path, user or query: the console does not work below a path")
	}
	return u, nil
}

// requireOwnOrigin refuses requests that pages of other origins cause. Without it they could use the
// client certificate of a browser, or a DNS name of their own that resolves to this console.
func (s *Server) requireOwnOrigin(next http.Handler) http.Handler {
	sameOrigin := http.NewCrossOriginProtection()
	if s.publicURL != nil { // a proxy may replace the Host that the browser sent
		_ = sameOrigin.AddTrustedOrigin(s.publicURL.Scheme + "://" + s.publicURL.Host) // ParsePublicURL has checked both
	}
	sameOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.writeError(w, newStatus(http.StatusForbidden, "pages of other origins cannot use the console"))
	}))
	protected := sameOrigin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if bearerToken(r) == "" && !s.isOwnHost(r.Host) {
			s.writeError(w, newStatus(http.StatusMisdirectedRequest, fmt.Sprintf(
				"host %q: the console is not served under this name; open it as localhost, or start the console with --public-url=https://%s", r.Host, r.Host)))
			return
		}
		protected.ServeHTTP(w, r)
	})
}

// isOwnHost reports whether the console serves browsers under the Host of a request. Addresses and no
// Host, which probes send, are allowed: a page of another site has a DNS name, even if that resolves
// to an address of the console.
func (s *Server) isOwnHost(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	return name == "" || name == "localhost" || net.ParseIP(name) != nil || s.publicURL != nil && strings.EqualFold(name, s.publicURL.Hostname())
}
