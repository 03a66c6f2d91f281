package actionlog

import (
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestQuery_RoundTrip(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 1000, time.UTC)
	for _, q := range []Query{
		{},
		{Namespace: "a", Kind: "Job", Name: "b", User: "system:serviceaccount:a b", Since: at, Until: at.Add(time.Hour), Limit: 7, Continue: "x"},
	} {
		v, err := url.ParseQuery(q.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Parse(v); err != nil || got != q {
			t.Errorf("%+v, %v; want %+v", got, err, q)
		}
	}
}

func TestParse_NamesTheInvalidParameter(t *testing.T) {
	for text, want := range map[string]string{
		"limit=0": "limit=0: must be from 1", "limit=1001": "limit=1001", "limit=x": "limit=x",
		"since=yesterday": "since=yesterday: must be a time", "until=1": "until=1", "who=me": `no parameter "who"`,
	} {
		v, _ := url.ParseQuery(text)
		if _, err := Parse(v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
