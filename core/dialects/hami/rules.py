"""What is special about cards of HAMi's protocol."""

from core.sharing.rules import Rules


class HamiRules(Rules):
    """HAMi's rules: one container can get several MIG instances of one card."""

    several = True
