"""A small text adventure: vocabulary, game state, actions, quests and a simulated player."""
