// Echo is a worker built on github.com/labstack/echo: all it takes is that the framework is the Handler of an
// http.Server.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"os"

	"github.com/labstack/echo/v4"

	"example.org/supervisord/worker/graceful"
)

func main() {
	address := flag.String("address", "127.0.0.1:8081", "where to listen when no socket is inherited")
	flag.Parse()
	log.SetFlags(0)
	if err := run(*address); err != nil {
		log.Fatal("echo: ", err)
	}
}

func run(address string) error {
	e := echo.New()
	e.GET("/", func(c echo.Context) error {
		return c.JSON(http.StatusOK, map[string]any{"pid": os.Getpid(), "generation": os.Getenv("SUPERVISORD_GENERATION")})
	})
	e.POST("/echo", func(c echo.Context) error {
		return c.Stream(http.StatusOK, c.Request().Header.Get("Content-Type"), c.Request().Body)
	})
	ln, err := graceful.Listener("http", address)
	if err != nil {
		return err
	}
	return graceful.Serve(context.Background(), graceful.HTTP(ln, &http.Server{Handler: e}))
}
