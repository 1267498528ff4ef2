// Reads a compose file as docker compose does, with its .env beside it and the variables of the
// environment, and prints the services that come out as JSON. Docker itself is not needed.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	ctx := context.Background()
	options, err := cli.NewProjectOptions(os.Args[1:],
		cli.WithOsEnv, cli.WithEnvFiles(), cli.WithDotEnv, cli.WithInterpolation(true))
	exitOn(err)
	project, err := options.LoadProject(ctx)
	exitOn(err)
	text, err := project.MarshalJSON()
	exitOn(err)
	fmt.Println(string(text))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
