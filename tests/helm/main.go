// Renders the chart as helm's engine does, with the same functions (text/template, sprig and those that helm adds), for a
// machine without helm. Prints the objects, in the order of the templates' names.
//
//	render CHART NAMESPACE < VALUES
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"sigs.k8s.io/yaml"
)

type files struct{ chart string }

// Get is the text of a file of the chart, as .Files.Get of helm: empty where there is none.
func (f files) Get(name string) string {
	text, _ := os.ReadFile(filepath.Join(f.chart, filepath.Clean("/"+name)))
	return string(text)
}

func main() {
	if err := run(os.Args[1], os.Args[2], os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(chart, namespace string, given io.Reader) error {
	about, err := read(filepath.Join(chart, "Chart.yaml"))
	if err != nil {
		return err
	}
	values, err := read(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(given)
	if err != nil {
		return err
	}
	var more map[string]any
	if err := yaml.Unmarshal(text, &more); err != nil {
		return err
	}
	merge(values, more)
	root := map[string]any{
		"Values":  values,
		"Release": map[string]any{"Name": "release", "Namespace": namespace},
		"Chart":   map[string]any{"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"]},
		"Files":   files{chart},
	}
	all := template.New("chart").Option("missingkey=zero")
	functions := sprig.TxtFuncMap()
	delete(functions, "env")
	delete(functions, "expandenv")
	functions["include"] = func(name string, data any) (string, error) {
		var out strings.Builder
		err := all.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	functions["toYaml"] = func(value any) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	}
	functions["toJson"] = func(value any) (string, error) {
		text, err := json.Marshal(value)
		return string(text), err
	}
	all.Funcs(functions)
	names, err := templates(chart)
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if _, err := all.New(name).Parse(string(text)); err != nil {
			return err
		}
	}
	for _, name := range names {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		var out bytes.Buffer
		if err := all.ExecuteTemplate(&out, name, root); err != nil {
			return err
		}
		fmt.Printf("---\n# Source: %s\n%s\n", name, strings.ReplaceAll(out.String(), "<no value>", ""))
	}
	return nil
}

func templates(chart string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(filepath.Join(chart, "templates"), func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, path)
		}
		return err
	})
	sort.Strings(found)
	return found, err
}

func read(path string) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var found map[string]any
	return found, yaml.Unmarshal(text, &found)
}

// merge lays more over values, as helm does: mappings are merged, null takes a key out.
func merge(values, more map[string]any) {
	for key, value := range more {
		under, isMapping := values[key].(map[string]any)
		over, isOver := value.(map[string]any)
		switch {
		case value == nil:
			delete(values, key)
		case isMapping && isOver:
			merge(under, over)
		default:
			values[key] = value
		}
	}
}
