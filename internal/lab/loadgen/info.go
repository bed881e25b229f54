package loadgen

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// Info is what the starter of a run knows and the load generator cannot see: the other programs' settings, pins,
// processes without metrics. It is merged into run.json; its config beats the load generator's own.
//
//	{"config": {"response_plane": "quic", "workers": 512, "worker_processes": 8, "lanes": 1, "server_endpoints": 4},
//	 "environment": {"pins": {"frontend": "0-1"}, "revision": "..."},
//	 "processes": [{"role": "etcd", "name": "etcd"}]}
type Info struct {
	Config      map[string]any      `json:"config,omitempty"`
	Environment *report.Environment `json:"environment,omitempty"`
	Processes   []report.Process    `json:"processes,omitempty"`
}

// ParseInfo reads an Info. Fields that it does not know are an error: a misspelt one would be lost in silence.
func ParseInfo(b []byte) (Info, error) {
	var i Info
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&i); err != nil {
		return Info{}, fmt.Errorf("run info: %w", err)
	}
	return i, nil
}

// plane is the plane whose proof of transit is asked for, "" when nobody said.
func (i Info) plane() string {
	s, _ := i.Config["response_plane"].(string)
	return s
}

// mergeInto adds what i knows to the run. What the load generator measured itself stays where i says nothing.
func (i Info) mergeInto(run *report.Run) error {
	for k, v := range i.Config {
		run.Config[k] = v
	}
	if i.Environment != nil {
		b, err := json.Marshal(i.Environment)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(b, &run.Environment); err != nil { // fields that are absent in b keep their value
			return err
		}
	}
	for _, p := range i.Processes {
		known := false
		for k := range run.Processes {
			if q := &run.Processes[k]; q.Role == p.Role && q.Name == p.Name {
				known = true
			}
		}
		if !known {
			run.Processes = append(run.Processes, p)
		}
	}
	return nil
}
