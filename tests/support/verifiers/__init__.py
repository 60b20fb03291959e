"""Views of an application that do not depend on the framework."""
