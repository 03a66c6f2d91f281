// Package config embeds the manifests that a cluster needs before K8s4r can
// run in it: the CRDs, the admission policies and the RBAC roles.
package config

import "embed"

// FS holds the directories crd, admission, rbac, webhook and deploy.
//
//go:embed crd/*.yaml admission/*.yaml rbac/*.yaml webhook/*.yaml deploy/*.yaml
var FS embed.FS
