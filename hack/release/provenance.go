package main

import (
	"debug/buildinfo"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"
)

// Types of the statement: https://github.com/in-toto/attestation and https://slsa.dev/spec/v1.0/provenance.
const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
	// buildType is documented in docs/how-to/install.md.
	buildType = "https://k8s4r.io/release/make/v1"
	builderID = "https://k8s4r.io/release/local"
	sourceURI = "git+https://k8s4r.io/k8s4r"
)

type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     provenance `json:"predicate"`
}

// resource is a ResourceDescriptor of in-toto.
type resource struct {
	Name        string            `json:"name,omitempty"`
	URI         string            `json:"uri,omitempty"`
	Digest      map[string]string `json:"digest,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type provenance struct {
	BuildDefinition buildDefinition `json:"buildDefinition"`
	RunDetails      runDetails      `json:"runDetails"`
}

type buildDefinition struct {
	BuildType            string            `json:"buildType"`
	ExternalParameters   map[string]string `json:"externalParameters"`
	InternalParameters   map[string]string `json:"internalParameters"`
	ResolvedDependencies []resource        `json:"resolvedDependencies"`
}

type runDetails struct {
	Builder  builder  `json:"builder"`
	Metadata metadata `json:"metadata"`
}

type builder struct {
	ID string `json:"id"`
}

type metadata struct {
	StartedOn  time.Time `json:"startedOn"`
	FinishedOn time.Time `json:"finishedOn"`
}

// newStatement describes the files of the release and how the programs in them were built.
func (o *options) newStatement(names []string, from source, began, ended time.Time) (*statement, error) {
	s := &statement{Type: statementType, PredicateType: predicateType}
	for _, name := range names {
		sum, err := sumFile(filepath.Join(o.out, name))
		if err != nil {
			return nil, err
		}
		s.Subject = append(s.Subject, resource{Name: name, Digest: map[string]string{"sha256": sum}})
	}
	modules, settings, err := readBuilds(o.bin)
	if err != nil {
		return nil, err
	}
	if have := settings["vcs.revision"]; have != "" && (have != from.commit || settings["vcs.modified"] == "true") {
		return nil, fmt.Errorf("the programs were built from %s with changes or from another commit than %s; run make build", have, from.commit)
	}
	s.Predicate = provenance{
		BuildDefinition: buildDefinition{
			BuildType:            buildType,
			ExternalParameters:   map[string]string{"target": "release", "version": o.version},
			InternalParameters:   settings,
			ResolvedDependencies: append([]resource{{URI: sourceURI + "@" + from.commit, Digest: map[string]string{"gitCommit": from.commit}}}, modules...),
		},
		RunDetails: runDetails{Builder: builder{builderID}, Metadata: metadata{began.UTC().Truncate(time.Second), ended.UTC().Truncate(time.Second)}},
	}
	return s, nil
}

// readBuilds returns the modules that are linked into the programs, and the settings with which Go built them,
// from the programs themselves.
func readBuilds(bin string) ([]resource, map[string]string, error) {
	modules := map[string]resource{}
	settings := map[string]string{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(filepath.Join(bin, program))
		if err != nil {
			return nil, nil, fmt.Errorf("%w; run make build", err)
		}
		if have := settings["go"]; have != "" && have != info.GoVersion {
			return nil, nil, fmt.Errorf("%s was built by %s, other programs by %s; run make build", program, info.GoVersion, have)
		}
		settings["go"] = info.GoVersion
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			if m.Sum == "" {
				continue // a module of this repository
			}
			uri := fmt.Sprintf("pkg:golang/%s@%s", m.Path, m.Version)
			modules[uri] = resource{URI: uri, Annotations: map[string]string{"goSum": m.Sum}}
		}
	}
	var all []resource
	for _, uri := range slices.Sorted(maps.Keys(modules)) {
		all = append(all, modules[uri])
	}
	return all, settings, nil
}
