package admin

import (
	"encoding"
	"encoding/json"
	"net/http"
	"reflect"
)

// WriteJSON answers with v, indented for people. Lists and objects that are empty are [] and {}, never null: scripts
// iterate over them. A value that cannot be marshalled is a 500 that says why, not half an answer.
func WriteJSON(w http.ResponseWriter, v any) {
	text, err := json.MarshalIndent(withoutNil(v), "", " ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(text, '\n')) // the reader may have left
}

// withoutNil is a copy of v whose nil slices and maps are empty ones.
func withoutNil(v any) any {
	in := reflect.ValueOf(v)
	if !in.IsValid() {
		return v
	}
	return filled(in).Interface()
}

var (
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

func filled(in reflect.Value) reflect.Value {
	t := in.Type()
	if t.Implements(marshaler) || t.Implements(textMarshaler) { // its own business
		return in
	}
	switch t.Kind() {
	case reflect.Struct:
		out := reflect.New(t).Elem()
		out.Set(in)
		for i := range t.NumField() {
			if f := out.Field(i); f.CanSet() {
				f.Set(filled(f))
			}
		}
		return out
	case reflect.Slice:
		out := reflect.MakeSlice(t, in.Len(), in.Len())
		for i := range in.Len() {
			out.Index(i).Set(filled(in.Index(i)))
		}
		return out
	case reflect.Map:
		out := reflect.MakeMapWithSize(t, in.Len())
		for k, e := range in.Seq2() {
			out.SetMapIndex(k, filled(e))
		}
		return out
	case reflect.Pointer:
		if in.IsNil() {
			return in
		}
		out := reflect.New(t.Elem())
		out.Elem().Set(filled(in.Elem()))
		return out
	case reflect.Interface:
		if in.IsNil() {
			return in
		}
		return filled(in.Elem())
	}
	return in
}
