// Command shoot records what a program prints: it copies standard input to standard output, and
// writes the recording at the end.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"hostler.io/hostler/test/demo/film"
)

func main() {
	cast := flag.String("cast", "", "file for the film, which asciinema plays")
	picture := flag.String("svg", "", "file for the picture that is drawn from it")
	flag.Parse()
	if err := shoot(*cast, *picture); err != nil {
		fmt.Fprintln(os.Stderr, "shoot:", err)
		os.Exit(1)
	}
}

func shoot(cast, picture string) error {
	f, err := film.Record(os.Stdin, os.Stdout)
	if err != nil {
		return err
	}
	file, err := os.Create(cast)
	if err != nil {
		return err
	}
	_, err = f.WriteTo(file)
	return errors.Join(err, file.Close(), os.WriteFile(picture, []byte(f.SVG()), 0o644))
}
