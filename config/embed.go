// Package config embeds the manifests that a cluster needs before K8s4r can
// run in it: the CRDs, the admission policies and the RBAC roles.
package config

import "embed"

// FS holds the directories crd, admission, defaults, rbac, webhook, deploy and up, which is for the embedded
// cluster of `k8s4r up` only.
//
//go:embed crd/*.yaml admission/*.yaml defaults/*.yaml rbac/*.yaml webhook/*.yaml deploy/*.yaml up/*.yaml
var FS embed.FS
