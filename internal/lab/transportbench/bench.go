package transportbench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/laneway-ai/laneway/transport"

	"github.com/laneway-ai/laneway/internal/program/procstat"
)

// Schema is the name of the report's form.
const Schema = "laneway.transport/1"

// Names of the tables.
const (
	TableMessages = "messages"
	TableLanes    = "lanes"
	TablePorts    = "ports"
	TableGroup    = "group"
)

// Tables are all of them.
func Tables() []string { return []string{TableMessages, TableLanes, TablePorts, TableGroup} }

// Sizes of messages, in bytes.
const (
	small = 64
	large = 64 << 10
)

// Config says what is measured. It is passed by value; there are no defaults behind the flags.
type Config struct {
	Connect  string   // where the server's control port is
	Planes   []string // tcp, tls, quic
	Tables   []string
	Messages int // of a cell
	Runs     int // repetitions of each cell, interleaved
	Log      *slog.Logger
	Progress func(string) // may be nil
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	if len(c.Planes) == 0 || len(c.Tables) == 0 {
		errs = append(errs, fmt.Errorf("nothing to measure: %d planes, %d tables", len(c.Planes), len(c.Tables)))
	}
	if c.Messages < inFlight {
		errs = append(errs, fmt.Errorf("%d messages: use %d or more, that many are in flight", c.Messages, inFlight))
	}
	if c.Runs < 1 {
		errs = append(errs, fmt.Errorf("%d repetitions: use 1 or more", c.Runs))
	}
	return errors.Join(errs...)
}

// cell is one thing that is measured once in each repetition.
type cell struct {
	table       *Table
	row, column string
	spec        Spec
	lanes, size int
	mode        string
	value       func(Measured) Value
	alsoRow     string // a second figure of the same measurement
	also        func(Measured) Value
}

func perSecond(m Measured) Value { return Value{Number: float64(m.Messages) / m.Elapsed.Seconds()} }
func mibPerSecond(m Measured) Value {
	return Value{Number: float64(m.Bytes) / (1 << 20) / m.Elapsed.Seconds()}
}
func p50(m Measured) Value { return Value{Number: float64(m.P50.Nanoseconds()) / 1000} }

// withDrops adds the packets that were lost, by kind.
func withDrops(m Measured) Value {
	v := mibPerSecond(m)
	var parts []string
	for _, k := range []struct {
		name string
		n    *uint64
	}{{"RcvbufErrors", m.Drops.Rcvbuf}, {"socket", m.Drops.Socket}, {"library", m.Drops.Library},
		{"lost", m.Drops.Lost}} {
		if k.n != nil {
			parts = append(parts, fmt.Sprintf("%s %d", k.name, *k.n))
		}
	}
	v.Note = strings.Join(parts, ", ")
	return v
}

// column is a plane as the tables name it.
type column struct {
	name  string
	plane string
	mtu   int
}

const (
	columnTCP  = "tcp"
	columnQUIC = "quic discovered"

	fromServerColumn = "from the server"
)

func (c Config) columns() []column {
	var out []column
	for _, p := range c.Planes {
		if p != transport.PlaneQUIC {
			out = append(out, column{p, p, 0})
			continue
		}
		out = append(out, column{"quic 1200", p, 1200}, column{"quic 1280", p, 1280}, column{columnQUIC, p, 0})
	}
	return out
}

// Endpoints is the default of --server-endpoints.
const Endpoints = 4

func (c Config) cells() (tables []*Table, cells []cell) {
	add := func(x cell) { cells = append(cells, x) }
	table := func(title, note string) *Table {
		t := &Table{Title: title, Note: note}
		tables = append(tables, t)
		return t
	}
	has := func(name string) bool { return slices.Contains(c.Tables, name) }
	quic := slices.Contains(c.Planes, transport.PlaneQUIC)
	if has(TableMessages) {
		t := table("Messages over one lane", "")
		if quic && slices.Contains(c.Planes, transport.PlaneTCP) {
			t.Ratios = append(t.Ratios, Ratio{Title: columnQUIC + " / " + columnTCP, Column: columnQUIC,
				Base: columnTCP})
		}
		for _, col := range c.columns() {
			spec := Spec{Plane: col.plane, MTU: col.mtu, Endpoints: 1}
			for _, x := range []cell{
				{row: "64 B, one at a time (msg/s)", size: small, mode: OneAtATime, value: perSecond,
					alsoRow: "64 B, one at a time, p50 (us)", also: p50},
				{row: "64 B, 64 in flight (msg/s)", size: small, mode: InFlight, value: perSecond},
				{row: "64 B, pipelined (msg/s)", size: small, mode: Pipelined, value: perSecond},
				{row: "64 KiB, one at a time (msg/s)", size: large, mode: OneAtATime, value: perSecond},
				{row: "64 KiB, 64 in flight (MiB/s)", size: large, mode: InFlight, value: mibPerSecond},
				{row: "64 KiB, pipelined (MiB/s)", size: large, mode: Pipelined, value: mibPerSecond},
			} {
				x.table, x.column, x.spec, x.lanes = t, col.name, spec, 1
				add(x)
			}
		}
	}
	pipe := func(t *Table, row, col string, s Spec, lanes int, mode string) {
		x := cell{table: t, row: row, column: col, spec: s, lanes: lanes, size: large, mode: mode, value: mibPerSecond}
		if s.Plane == transport.PlaneQUIC {
			x.value = withDrops
		}
		add(x)
	}
	both := func(t *Table, row string, s Spec, lanes int) {
		pipe(t, row, fromServerColumn, s, lanes, Pipelined)
		pipe(t, row, ToServer, s, lanes, ToServer)
	}
	if has(TableLanes) {
		t := table("64 KiB messages, pipelined, over lanes (MiB/s), 4 ports", Scaling(1, 2, 4, 8))
		for _, lanes := range []int{1, 2, 4, 8} {
			for _, p := range c.Planes {
				pipe(t, Lanes(lanes), p, Spec{Plane: p, Endpoints: Endpoints}, lanes, Pipelined)
			}
		}
		if quic && slices.Contains(c.Planes, transport.PlaneTCP) {
			t.Ratios = append(t.Ratios, Ratio{Title: "quic / tcp", Column: transport.PlaneQUIC,
				Base: transport.PlaneTCP})
		}
		toFirst(t, rows(cells, t), c.Planes...)
	}
	if has(TablePorts) && quic {
		t := table("64 KiB messages, pipelined, over quic lanes x server sockets, one port each (MiB/s)",
			Scaling(1, 4, 8))
		for _, k := range [][2]int{{1, 4}, {4, 4}, {8, 4}, {8, 8}} {
			both(t, fmt.Sprintf("%s x %d ports", Lanes(k[0]), k[1]), Spec{Plane: transport.PlaneQUIC, Endpoints: k[1]},
				k[0])
		}
		toFirst(t, rows(cells, t), fromServerColumn, ToServer)
	}
	if has(TableGroup) && quic {
		t := table("64 KiB messages, pipelined, over 8 quic lanes, server sockets in one SO_REUSEPORT group (MiB/s)",
			Scaling(8))
		for _, n := range []int{4, 8, 32} {
			both(t, fmt.Sprintf("%d sockets", n), Spec{Plane: transport.PlaneQUIC, Group: n}, 8)
		}
		toFirst(t, rows(cells, t), fromServerColumn, ToServer)
	}
	return tables, cells
}

// rows are those that the cells of a table will have.
func rows(cells []cell, t *Table) (out []string) {
	for _, x := range cells {
		if x.table == t && !slices.Contains(out, x.row) {
			out = append(out, x.row)
		}
	}
	return out
}

// toFirst adds columns with the ratio of each row to the first one.
func toFirst(t *Table, rows []string, columns ...string) {
	base := map[string]string{}
	for _, r := range rows {
		base[r] = rows[0]
	}
	for _, c := range columns {
		t.Ratios = append(t.Ratios, Ratio{Title: c + ", to " + rows[0], Column: c, Base: c, Rows: base})
	}
}

// Execute measures every cell once in each repetition, one after the other. On an error it returns what was measured
// before too.
func Execute(ctx context.Context, c Config) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	ctl, err := DialControl(ctx, c.Connect)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	tables, cells := c.cells()
	var all []Cell
	for _, x := range cells {
		all = append(all, Cell{Name: fmt.Sprintf("%s: %s, %s", x.table.Title, x.row, x.column),
			Measure: func(ctx context.Context) error {
				m, err := run(ctx, ctl, c.Log, x.spec, x.lanes, x.size, c.Messages, x.mode)
				if err != nil {
					return err
				}
				x.table.Add(x.row, x.column, x.value(m))
				if x.also != nil {
					x.table.Add(x.alsoRow, x.column, x.also(m))
				}
				return nil
			}})
	}
	r := &Report{Schema: Schema, Cores: procstat.CPUs(), Messages: c.Messages, Runs: c.Runs, Tables: tables}
	return r, Repeat(ctx, c.Runs, all, c.Progress)
}
