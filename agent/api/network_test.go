package api_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"hostler.io/hostler/agent/api"
)

// allowed has the names that tests use.
func allowed() api.Names {
	return api.Names{Read: []string{"prometheus", "scraper.example.org", "spiffe://example.org/reader"}, Act: []string{"ops", "system:ops"}}
}

func network(b api.Backend) http.Handler {
	return api.NetworkRoutes(b, metrics(), allowed, slog.New(slog.DiscardHandler))
}

// named returns a certificate with this common name.
func named(name string) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: name}}
}

// come sends a request to the handler as over the network, with a verified certificate; nil for
// none.
func come(h http.Handler, with *x509.Certificate, r *http.Request) *httptest.ResponseRecorder {
	r.TLS = &tls.ConnectionState{}
	if with != nil {
		r.TLS.PeerCertificates, r.TLS.VerifiedChains = []*x509.Certificate{with}, [][]*x509.Certificate{{with}}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestOverTheNetworkEachDoesAsTheyMay(t *testing.T) {
	reads, acts, stays := 0, 0, 0
	for _, r := range api.Describe() {
		for name, may := range map[string]map[string]bool{ // by the access that the route needs
			"prometheus": {"read": true},
			"ops":        {"read": true, "act": true},
			"stranger":   {},
		} {
			takes := "nobody"
			switch {
			case r.Network && r.Acts:
				takes, acts = "act", acts+1
			case r.Network:
				takes, reads = "read", reads+1
			default:
				stays++
			}
			b := &backend{}
			w := come(network(b), named(name), httptest.NewRequest(r.Method, path(r.Path), strings.NewReader("{}")))
			want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[may[takes]]
			if w.Code != want {
				t.Errorf("%s %s by %s = %d %s, want %d", r.Method, r.Path, name, w.Code, w.Body, want)
			}
			if want == http.StatusOK {
				continue
			}
			var e api.Error
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Message == "" || e.Hint == "" {
				t.Errorf("%s %s by %s = %s, want an error with a hint", r.Method, r.Path, name, w.Body)
			}
			if asked := len(b.requests()) + len(b.drains) + len(b.cordons) + len(b.logs); asked > 0 {
				t.Errorf("%s %s by %s reached the agent", r.Method, r.Path, name)
			}
		}
	}
	if acts != 3*4 || stays < 3*7 || reads < 3*12 {
		t.Errorf("over the network %d routes are read, %d act and %d are not there, want those that drain, cordon, uncordon and read logs to act", reads/3, acts/3, stays/3)
	}
}

func TestWhoseACertificateIs(t *testing.T) {
	uri := func(text string) *url.URL {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for name, c := range map[string]struct {
		with *x509.Certificate
		want string // the answer to Cordon
	}{
		"an actor by common name":               {named("ops"), `"by":"certificate ops"`},
		"one with colons":                       {named("system:ops"), `"by":"certificate system:ops"`},
		"an actor by DNS name":                  {&x509.Certificate{DNSNames: []string{"ops"}}, `"by":"certificate ops"`},
		"a reader who is an actor as well":      {&x509.Certificate{Subject: pkix.Name{CommonName: "prometheus"}, DNSNames: []string{"ops"}}, `"by":"certificate ops"`},
		"a reader by common name":               {named("prometheus"), `\"prometheus\" may only read`},
		"a reader by DNS name":                  {&x509.Certificate{Subject: pkix.Name{CommonName: "x"}, DNSNames: []string{"scraper.example.org"}}, `\"scraper.example.org\" may only read`},
		"a reader by URI":                       {&x509.Certificate{URIs: []*url.URL{uri("spiffe://example.org/reader")}}, `\"spiffe://example.org/reader\" may only read`},
		"a common name that poses as a URI":     {named("spiffe://example.org/reader"), "no name of the client certificate is allowed here: []"},
		"a DNS name that poses as a URI":        {&x509.Certificate{DNSNames: []string{"spiffe://example.org/reader"}}, "is allowed here: []"},
		"a URI that poses as a common name":     {&x509.Certificate{URIs: []*url.URL{uri("system:ops")}}, "is allowed here: []"},
		"an e-mail address":                     {&x509.Certificate{EmailAddresses: []string{"ops"}}, "is allowed here: []"},
		"an organization":                       {&x509.Certificate{Subject: pkix.Name{Organization: []string{"ops"}}}, "is allowed here: []"},
		"another case":                          {named("Ops"), `is allowed here: [\"Ops\"]`},
		"a name that begins so":                 {named("ops.example.org"), `is allowed here: [\"ops.example.org\"]`},
		"a pattern":                             {&x509.Certificate{DNSNames: []string{"*"}}, `is allowed here: [\"*\"]`},
		"no name":                               {&x509.Certificate{}, "is allowed here: []"},
		"nobody":                                {nil, "no client certificate that is verified"},
		"a common name in a certificate of DNS": {&x509.Certificate{Subject: pkix.Name{CommonName: "ops"}, DNSNames: []string{"x"}}, `"by":"certificate ops"`},
	} {
		w := come(network(&backend{}), c.with, httptest.NewRequest("POST", "/v1/cordon", nil))
		if !strings.Contains(w.Body.String(), c.want) || strings.Contains(c.want, `"by"`) != (w.Code == http.StatusOK) {
			t.Errorf("%s: POST /v1/cordon = %d %s, want %s", name, w.Code, w.Body, c.want)
		}
	}
	unverified := httptest.NewRequest("GET", "/v1/status", nil)
	unverified.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{named("ops")}}
	w := httptest.NewRecorder()
	if network(&backend{}).ServeHTTP(w, unverified); w.Code != http.StatusForbidden {
		t.Errorf("with a certificate that nobody has verified = %d %s, want 403", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	if network(&backend{}).ServeHTTP(w, httptest.NewRequest("GET", "/v1/status", nil)); w.Code != http.StatusForbidden {
		t.Errorf("without TLS = %d %s, want 403", w.Code, w.Body)
	}
}

// "OPTIONS *" has no path. net/http would answer it before the caller is identified.
func TestNobodyIsAnsweredBeforeTheyAreKnown(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config = api.NewServer(network(&backend{}))
	server.Start()
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.URL.Opaque = "*"
	resp, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusForbidden {
		t.Errorf("OPTIONS * by nobody = %s, want 403", resp.Status)
	}
}

// As Prometheus does with metrics.listen.
func TestMetricsAloneAreServedToReaders(t *testing.T) {
	h := api.NetworkMetrics(metrics(), allowed, slog.New(slog.DiscardHandler))
	for _, c := range []struct {
		name, path string
		code       int
	}{
		{"prometheus", "/metrics", http.StatusOK},
		{"ops", "/metrics", http.StatusOK},
		{"stranger", "/metrics", http.StatusForbidden},
		{"ops", "/v1/status", http.StatusNotFound},
		{"stranger", "/v1/status", http.StatusForbidden},
	} {
		if w := come(h, named(c.name), httptest.NewRequest("GET", c.path, nil)); w.Code != c.code {
			t.Errorf("GET %s by %s = %d %s, want %d", c.path, c.name, w.Code, w.Body, c.code)
		}
	}
}

// A browser sends its client certificate with requests of any page.
func TestPagesOfOtherSitesDoNotAct(t *testing.T) {
	b := &backend{}
	r := httptest.NewRequest("POST", "/v1/cordon", nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if w := come(network(b), named("ops"), r); w.Code != http.StatusForbidden || len(b.cordons) > 0 || !json.Valid(w.Body.Bytes()) {
		t.Errorf("POST /v1/cordon by a page of another site = %d %s, want 403", w.Code, w.Body)
	}
}

// For any request over the network, nothing panics. Readers and strangers reach nothing that
// changes the host, and nobody reaches what is served only locally.
func FuzzNetworkRoutes(f *testing.F) {
	for i := range api.Describe() {
		f.Add(uint(i), "", "prometheus", []byte("{}"))
		f.Add(uint(i), "GET", "ops", []byte(`{"all":1}{}`))
	}
	f.Add(uint(0), "POST", "", []byte{})
	all := api.Describe()
	f.Fuzz(func(t *testing.T, which uint, method, name string, body []byte) {
		r := all[which%uint(len(all))]
		if method == "" {
			method = r.Method
		}
		request, err := http.NewRequestWithContext(t.Context(), method, "https://hostler"+path(r.Path), bytes.NewReader(body))
		if err != nil {
			return // no valid method
		}
		b := &backend{}
		w := come(network(b), named(name), request)
		actor := allowed().Act[0] == name || allowed().Act[1] == name
		reader := actor || allowed().Read[0] == name || allowed().Read[1] == name
		collected := len(b.requests()) > 0 && r.Path != "/v1/gc/plan"
		if acted := len(b.drains)+len(b.cordons)+len(b.logs) > 0; collected || acted && !actor && r.Path != "/v1/drain/plan" {
			t.Errorf("%s %s by %q reached the agent, and was answered %d", method, r.Path, name, w.Code)
		}
		if !reader && (w.Code != http.StatusForbidden || len(b.requests())+len(b.drains) > 0) {
			t.Errorf("%s %s by %q = %d %s, want 403", method, r.Path, name, w.Code, w.Body)
		}
		if !r.Network && method == r.Method && w.Code != http.StatusForbidden {
			t.Errorf("%s %s by %q = %d %s, want 403: it is not served over the network", method, r.Path, name, w.Code, w.Body)
		}
		if w.Code >= http.StatusInternalServerError {
			t.Errorf("%s %s by %q = %d %s", method, r.Path, name, w.Code, w.Body)
		}
	})
}
