"""The one process per host and store that reads journals into the store."""
