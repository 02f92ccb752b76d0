"""How alerts reach people: messages, routing, quiet hours, and delivery that is tried again."""
