// Package masking hides private keys, which users may pass as arguments of plugins, in what is shown
// to others and kept after an object is deleted.
package masking

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Mask replaces a private key.
const Mask = "(masked)"

const (
	// argument is the argument of the plugin ssh that holds a private key.
	argument = "ssh-private-key"
	// pemType is in each private key in PEM format.
	pemType = "PRIVATE KEY-----"
)

// MaskManifest returns an object as JSON with Mask instead of the private keys in the arguments of
// plugins. An object without any is returned as it is.
func MaskManifest(manifest []byte) []byte {
	if !bytes.Contains(manifest, []byte(argument)) && !bytes.Contains(manifest, []byte(pemType)) {
		return manifest
	}
	var object any
	decoder := json.NewDecoder(bytes.NewReader(manifest))
	decoder.UseNumber() // float64 would round large ones
	if err := decoder.Decode(&object); err != nil {
		return []byte("null") // what cannot be read cannot be masked
	}
	masked, err := json.Marshal(maskValue(object))
	if err != nil {
		return []byte("null")
	}
	return masked
}

// maskValue masks a value of any type. It changes maps and lists in place.
func maskValue(value any) any {
	switch value := value.(type) {
	case map[string]any:
		if plugins, ok := value["plugins"].(map[string]any); ok {
			if arguments, ok := plugins["ssh"].([]any); ok {
				maskArguments(arguments)
			}
		}
		for key, field := range value {
			value[key] = maskValue(field)
		}
	case []any:
		for i := range value {
			value[i] = maskValue(value[i])
		}
	case string:
		return maskText(value)
	}
	return value
}

// maskText masks a text that is an object itself: kubectl apply keeps what it has applied in an
// annotation.
func maskText(text string) string {
	if !strings.HasPrefix(text, "{") || !json.Valid([]byte(text)) {
		return text
	}
	return string(MaskManifest([]byte(text)))
}

// maskArguments masks the value of the argument, in the same text or in the next one, and all PEM
// texts, because a misspelt argument holds a key as well.
func maskArguments(arguments []any) {
	isKey := false
	for i := range arguments {
		text, ok := arguments[i].(string)
		if !ok {
			continue
		}
		name, value, hasValue := strings.Cut(text, "=")
		isName := strings.TrimLeft(name, "-") == argument
		switch {
		case isKey:
			arguments[i] = Mask
		case isName && hasValue:
			arguments[i] = name + "=" + Mask
		case strings.Contains(value, pemType):
			arguments[i] = name + "=" + Mask
		case strings.Contains(text, pemType):
			arguments[i] = Mask
		}
		isKey = !isKey && isName && !hasValue
	}
}
