"""The Studio, a web interface: its built assets and the headers that they are served with."""
