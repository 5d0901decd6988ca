package config

// What follows lets package convert ask before it writes.

// CheckVariable says why a program cannot have a variable of this name of its own; nil: it can.
func CheckVariable(name string) error { return checkVariable(name, nil) }

// CheckEnvironmentFile says why the text of an environment file cannot be read; nil: it can. Name is for the error.
func CheckEnvironmentFile(name, text string) error {
	_, err := parseEnvironment(name, text, nil)
	return err
}
