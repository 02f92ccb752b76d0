"""Takes journals into the store: once and only once, file after file, whatever is in them."""
