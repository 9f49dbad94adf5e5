"""The engine: compiles a finished model and runs it fast on the CPU. No part and no model imports it."""
