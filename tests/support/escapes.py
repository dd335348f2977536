def outcome(name):
    return name
