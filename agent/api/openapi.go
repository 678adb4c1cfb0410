package api

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"reflect"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/shutdown/plan"
)

// object is a part of the description.
type object = map[string]any

// OpenAPI describes the API as OpenAPI 3.1. It is generated from the route table and the types of
// the answers. docs/reference/api.md says which parts of the answers are stable.
func OpenAPI(version string) ([]byte, error) {
	d := describer{schemas: object{}}
	failure, err := d.schema(reflect.TypeFor[Error]())
	if err != nil {
		return nil, fmt.Errorf("describe errors: %w", err)
	}
	paths := map[string]object{}
	for _, r := range Describe() {
		operation, err := d.operation(r, failure)
		if err != nil {
			return nil, fmt.Errorf("describe %s %s: %w", r.Method, r.Path, err)
		}
		if paths[r.Path] == nil {
			paths[r.Path] = object{}
		}
		paths[r.Path][strings.ToLower(r.Method)] = operation
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	err = enc.Encode(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "hostler", "version": version, "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "The API of the agent on a host, on the unix socket /run/hostler/hostler.sock. Users who may open the socket may read; only root may act. If configured, some routes are also served over the network with TLS 1.3. There the client certificate identifies the caller, and x-hostler-network names the right that a route needs.",
		},
		"servers": []object{
			{"url": "http://hostler", "description": "over the unix socket; the name does not matter"},
			{"url": "https://{address}", "description": "over the network, if api.listen is set", "variables": object{"address": object{"default": "localhost:9755"}}},
		},
		"paths": paths,
		"components": object{"schemas": d.schemas, "securitySchemes": object{
			certificateScheme: object{"type": "mutualTLS", "description": "A client certificate of an authority in api.tls.clientCA, with a name of api.tls.allowedNames."},
		}},
	})
	return b.Bytes(), err
}

// certificateScheme is the authentication of callers over the network.
const certificateScheme = "clientCertificate"

// describer collects the schemas of named types.
type describer struct{ schemas object }

func (d *describer) operation(r Description, failure object) (object, error) {
	fails := func(why string) object {
		return object{"description": why, "content": object{oneJSON: object{"schema": failure}}}
	}
	body := object{}
	if r.Answer != nil {
		s, err := d.schema(reflect.TypeOf(r.Answer))
		if err != nil {
			return nil, err
		}
		body["schema"] = s
	}
	text := "The request."
	if r.Format == jsonLines {
		text = "One JSON value a line, of this schema each."
	}
	answers := object{"200": object{"description": text, "content": object{r.Format: body}}}
	o := object{"operationId": operationID(r), "summary": r.Summary, "responses": answers, "x-hostler-access": "read", "x-hostler-network": "no"}
	answers["403"] = fails("Over the network: the caller may not do this, or the route is not served there.")
	if r.Acts {
		o["x-hostler-access"] = "root"
		answers["403"] = fails("The caller is not root. Over the network: the caller may not do this, or the route is not served there.")
	}
	if r.Network {
		o["x-hostler-network"] = map[bool]string{true: "act", false: "read"}[r.Acts]
		o["security"] = []object{{}, {certificateScheme: []string{}}} // the socket needs no certificate
	}
	if r.Request != nil {
		s, err := d.schema(reflect.TypeOf(r.Request))
		if err != nil {
			return nil, err
		}
		o["requestBody"] = object{"required": true, "content": object{oneJSON: object{"schema": s}}}
		answers["400"] = fails("Invalid request.")
	}
	if r.Answer != nil && r.Format == oneJSON {
		answers["500"] = fails("The agent could not answer or do it.")
	}
	if r.Path == "/healthz" {
		answers[strconv.Itoa(http.StatusServiceUnavailable)] = object{"description": "The loops that make no progress.", "content": object{plainText: object{}}}
	}
	var parameters []object
	for part := range strings.SplitSeq(r.Path, "/") {
		if name, is := strings.CutPrefix(part, "{"); is {
			parameters = append(parameters, object{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "schema": object{"type": "string"}})
		}
	}
	if len(parameters) > 0 && r.Format != octets {
		answers["404"] = fails("No object of that name.")
	}
	if r.Path == logPath {
		parameters = append(parameters, object{"name": "tail", "in": "query", "schema": object{"type": "integer", "minimum": 1, "maximum": maxLines, "default": standardLines}})
		answers["400"] = fails("Invalid request.")
		answers["500"] = fails("The agent could not answer.")
		answers["501"] = fails("The runtime keeps no readable log of this container.")
	}
	if len(parameters) > 0 {
		o["parameters"] = parameters
	}
	return o, nil
}

// operationID returns a name for generated clients, such as getV1GcHistory.
func operationID(r Description) string {
	id := strings.ToLower(r.Method)
	for _, word := range strings.FieldsFunc(r.Path, func(c rune) bool { return strings.ContainsRune("/{}.", c) }) {
		id += strings.ToUpper(word[:1]) + word[1:]
	}
	return id
}

// schema returns the schema of a type, following the rules of encoding/json.
func (d *describer) schema(t reflect.Type) (object, error) {
	switch t {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return object{"type": []string{"string", "null"}, "format": "date-time"}, nil
	case reflect.TypeFor[metav1.Duration]():
		return object{"type": "string", "description": "A duration, such as 1m30s."}, nil
	case reflect.TypeFor[plan.Delay]():
		return object{"type": "string", "description": "A duration, such as 1m30s, or infinity."}, nil
	case reflect.TypeFor[resource.Quantity]():
		return object{"type": "string", "description": "A quantity, such as 1Gi."}, nil
	}
	switch {
	case strings.HasPrefix(t.PkgPath(), "k8s.io/api/") && t.Kind() == reflect.Struct:
		return object{"type": "object", "description": "A " + t.Name() + " of Kubernetes' API, " + path.Base(t.PkgPath()) + "."}, nil
	case t.Kind() != reflect.Pointer && implements[encoding.TextMarshaler](t):
		return object{"type": "string"}, nil
	case t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface && implements[json.Marshaler](t):
		return nil, fmt.Errorf("%s writes itself: say as what", t)
	}
	switch t.Kind() {
	case reflect.String:
		return object{"type": "string"}, nil
	case reflect.Bool:
		return object{"type": "boolean"}, nil
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer"}, nil
	case reflect.Float64:
		return object{"type": "number"}, nil
	case reflect.Pointer:
		s, err := d.schema(t.Elem())
		return object{"anyOf": []any{s, object{"type": "null"}}}, err
	case reflect.Slice:
		s, err := d.schema(t.Elem())
		return object{"type": []string{"array", "null"}, "items": s}, err
	case reflect.Map:
		s, err := d.schema(t.Elem())
		return object{"type": []string{"object", "null"}, "additionalProperties": s}, err
	case reflect.Struct:
		return d.named(t)
	}
	return nil, fmt.Errorf("%s has no schema", t)
}

func implements[I any](t reflect.Type) bool {
	i := reflect.TypeFor[I]()
	return t.Implements(i) || reflect.PointerTo(t).Implements(i)
}

// named returns a reference to the schema of a struct. The first call generates the schema.
func (d *describer) named(t reflect.Type) (object, error) {
	name := path.Base(t.PkgPath()) + "." + t.Name()
	if d.schemas[name] == nil {
		s := object{}
		d.schemas[name] = s // before its fields, because they may have the same type
		properties, required := object{}, []string{}
		if err := d.fields(t, properties, &required); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		s["type"], s["properties"] = "object", properties
		if len(required) > 0 {
			s["required"] = required
		}
	}
	return object{"$ref": "#/components/schemas/" + name}, nil
}

// fields adds the fields of a struct, and then those of embedded structs. Outer fields have
// precedence, as in encoding/json.
func (d *describer) fields(t reflect.Type, properties object, required *[]string) error {
	var within []reflect.Type
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			within = append(within, f.Type)
			continue
		case name == "-" || !f.IsExported():
			continue
		case name == "":
			name = f.Name
		}
		if _, outer := properties[name]; outer {
			continue
		}
		s, err := d.schema(f.Type)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		properties[name] = s
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			*required = append(*required, name)
		}
	}
	for _, t := range within {
		if err := d.fields(t, properties, required); err != nil {
			return err
		}
	}
	return nil
}
