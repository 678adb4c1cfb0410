package server

import "net/http"

// Routes returns the routes of the API.
func (s *Server) Routes() http.Handler { return s.routes() }
