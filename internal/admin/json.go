package admin

import (
	"encoding/json"
	"net/http"
)

// WriteJSON answers with v, indented for people. A value that cannot be marshalled is a 500 that says why, not half an answer.
func WriteJSON(w http.ResponseWriter, v any) {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(text, '\n')) // the reader may have left
}
