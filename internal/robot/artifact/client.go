package artifact

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// maxRedirects that one request follows.
const maxRedirects = 10

// client asks servers for sources. It does not use http.Client: that puts the
// addresses of redirects into its errors, and tells the next server the
// address of the last, with the signature that may be in it.
type client struct{ http *http.Transport }

func newClient() *client {
	dialer := &net.Dialer{Timeout: 30 * time.Second, ControlContext: refuse}
	return &client{&http.Transport{
		// No proxy: behind one nobody could say where a request goes.
		DialContext: dialer.DialContext,
		// The body as it is stored: its checksum, its size and its parts are
		// those of these bytes.
		DisableCompression:     true,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: 64 << 10,
		TLSHandshakeTimeout:    30 * time.Second,
	}}
}

// get asks for a source from an offset on, if it is still the same, and follows
// redirects. Its errors name no address.
func (c *client) get(ctx context.Context, u *url.URL, offset int64, validator string) (*http.Response, error) {
	for range maxRedirects + 1 {
		resp, err := c.send(ctx, u, offset, validator)
		if err != nil {
			return nil, err
		}
		if !redirects(resp) {
			return resp, nil
		}
		resp.Body.Close()
		if u, err = follow(u, resp.Header.Get("Location")); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("more than %d redirects", maxRedirects)
}

func (c *client) send(ctx context.Context, u *url.URL, offset int64, validator string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "", http.NoBody)
	if err != nil {
		return nil, err
	}
	req.URL = u
	if u.User != nil {
		password, _ := u.User.Password()
		req.SetBasicAuth(u.User.Username(), password)
	}
	req.Header.Set("User-Agent", "k8s4r-agent")
	req.Header.Set("Accept-Encoding", "identity")
	if offset > 0 {
		req.Header.Set("Range", "bytes="+strconv.FormatInt(offset, 10)+"-")
		req.Header.Set("If-Range", validator)
	}
	resp, err := c.http.RoundTrip(req)
	if err == nil || errors.Is(err, errRefused) || errors.As(err, new(*tls.CertificateVerificationError)) {
		return resp, err
	}
	return nil, temporary{error: err}
}

func redirects(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return resp.Header.Get("Location") != ""
	}
	return false
}

// follow is where a redirect leads.
func follow(from *url.URL, location string) (*url.URL, error) {
	to, err := from.Parse(location)
	switch {
	case err != nil:
		return nil, errors.New("the server redirects to something that is no address") // err quotes it
	case to.Scheme != "http" && to.Scheme != "https":
		return nil, fmt.Errorf("the server redirects to a %.20s address", to.Scheme)
	case from.Scheme == "https" && to.Scheme == "http":
		return nil, errors.New("the server redirects from https to http")
	case to.Hostname() == "":
		return nil, errors.New("the server redirects to an address without a host")
	}
	return to, nil
}
