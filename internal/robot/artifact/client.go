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

// maxRedirects is the number of redirects that one request follows.
const maxRedirects = 10

// client requests sources from servers. It does not use http.Client, which includes the addresses
// of redirects in its errors, and sends the previous address, whose signature may be secret, as
// Referer.
type client struct{ http *http.Transport }

func newClient() *client {
	dialer := &net.Dialer{Timeout: 30 * time.Second, ControlContext: checkAddress}
	return &client{&http.Transport{
		// No proxy: behind one, checkAddress could not check the target.
		DialContext: dialer.DialContext,
		// The checksum, the size and the parts refer to the stored bytes.
		DisableCompression:     true,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: 64 << 10,
		TLSHandshakeTimeout:    30 * time.Second,
	}}
}

// getSource requests a source from an offset on, on condition that it has not changed, and follows
// redirects. Its errors contain no address.
func (c *client) getSource(ctx context.Context, u *url.URL, offset int64, validator string) (*http.Response, error) {
	for range maxRedirects + 1 {
		resp, err := c.sendRequest(ctx, u, offset, validator)
		if err != nil {
			return nil, err
		}
		if !isRedirect(resp) {
			return resp, nil
		}
		resp.Body.Close()
		if u, err = resolveRedirect(u, resp.Header.Get("Location")); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("more than %d redirects", maxRedirects)
}

func (c *client) sendRequest(ctx context.Context, u *url.URL, offset int64, validator string) (*http.Response, error) {
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
	if err == nil || errors.Is(err, errForbiddenAddress) || errors.As(err, new(*tls.CertificateVerificationError)) {
		return resp, err
	}
	return nil, temporaryError{error: err}
}

func isRedirect(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return resp.Header.Get("Location") != ""
	}
	return false
}

// resolveRedirect returns the target of a redirect.
func resolveRedirect(from *url.URL, location string) (*url.URL, error) {
	to, err := from.Parse(location)
	switch {
	case err != nil:
		return nil, errors.New("the server redirected to an invalid address") // err quotes the address
	case to.Scheme != "http" && to.Scheme != "https":
		return nil, fmt.Errorf("the server redirected to a %.20s address", to.Scheme)
	case from.Scheme == "https" && to.Scheme == "http":
		return nil, errors.New("the server redirected from https to http")
	case to.Hostname() == "":
		return nil, errors.New("the server redirected to an address without a host")
	}
	return to, nil
}
