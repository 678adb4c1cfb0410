package server

import "net/http"

// Routes are those of the API.
func (s *Server) Routes() http.Handler { return s.routes() }
